"""Passwords, tokens and private keys are found whatever they are in. Samples are made up, and put together here."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import string
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from conftest import Tool
from kernel_builder.check.engine import check_paths
from kernel_builder.check.secrets import secrets_in
from kernel_libraries import Workshop
from kernel_trees import codes, findings, source, variant

LETTERS = "aBcDeFgHiJ" * 20
DIGITS = "0123456789" * 10
HEX = "0123456789abcdef" * 8
HUB = "hf_" + LETTERS[:34]
KEY = "-----BEGIN " + "PRIVATE KEY-----"
SAMPLES = {
    "PEM": f"{KEY}\nMIIEvQIBADANBg\n",
    "PEM of RSA": "-----BEGIN " + "RSA PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED\r\n",
    "OpenSSH": "-----BEGIN " + "OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXkt\n",
    "PGP": "-----BEGIN " + "PGP PRIVATE KEY BLOCK-----\n\nlQdGBGB\n",
    "PEM in JSON": f'{{"private_key": "{KEY}\\nMIIEvQIBADANBg\\n"}}',
    "PEM in lines of code": f'KEY = ("{KEY}\\n"\n       "MIIEvQIBADANBgkqhkiG9w0BAQ\\n")',
    "PuTTY": "PuTTY-User-" + "Key-File-3: ssh-ed25519\n",
    "age": "AGE-SECRET-" + "KEY-1" + "Q2W3E4R5T6" * 6,
    "kubeconfig": "users:\n- user:\n    client-key-" + f"data: {LETTERS[:60]}==\n",
    "Hub": HUB,
    "Hub, in a name": f"TOKEN_{HUB}",
    "Hub, of an organization": "api_" + "org_" + LETTERS[:34],
    "GitHub": "ghp_" + LETTERS[:36],
    "GitHub, fine-grained": "github_" + "pat_" + LETTERS[:82],
    "GitHub, of a server": "ghs_" + LETTERS[:36],
    "GitLab": "glpat-" + LETTERS[:20],
    "AWS": "AKIA" + "ABCDEFGHIJ234567",
    "AWS, secret": "aws_secret_" + f"access_key = {LETTERS[:40]}",
    "AWS, secret in JSON": '"Secret' + f'AccessKey": "{LETTERS[:40]}"',
    "Google": "AIza" + LETTERS[:35],
    "Google, service account": '"private_' + f'key_id": "{HEX[:40]}"',
    "Google, OAuth": "GOCSPX-" + LETTERS[:28],
    "Azure": "AccountName=x;Account" + f"Key={LETTERS[:86]}==",
    "Slack": "xoxb-" + f"{DIGITS[:12]}-{LETTERS[:24]}",
    "Slack, webhook": "https://hooks.slack" + f".com/services/T012/B345/{LETTERS[:24]}",
    "package index": "pypi-" + "AgEI" + LETTERS[:80],
    "package registry": "npm_" + LETTERS[:36],
    "package registry, configuration": "//host/:_auth" + "Token=0123abcd-1",
    "package index, password": "[distutils]\nindex-servers = pypi\n[pypi]\nusername = me\npass" + "word = hunter22\n",
    "container registry": '{"auths": {"host": {"au' + 'th": "bWU6c2VjcmV0"}}}',
    "netrc": "machine host.example login me pass" + "word hunter22\n",
    "URL": "https://x-access-" + "token:0123456789abc@host/owner/name.git",
    "Stripe": "sk_" + "live_" + LETTERS[:24],
    "OpenAI": "sk-" + "proj-" + LETTERS[:60],
    "OpenAI, old": "sk-" + LETTERS[:20] + "T3Blbk" + "FJ" + LETTERS[:20],
    "Anthropic": "sk-" + "ant-api03-" + LETTERS[:90],
    "SendGrid": "SG" + f".{LETTERS[:22]}.{LETTERS[:43]}",
    "DigitalOcean": "dop" + f"_v1_{HEX[:64]}",
    "Vault": "hvs" + f".{LETTERS[:30]}",
}
HARMLESS = [
    f'if "{KEY}" in text: raise ValueError("no keys")',
    f"starts = line.startswith('{KEY}')",
    "hf_kernel_forward = hf_" + "x" * 20,
    "def hf_" + "a" * 40 + "(): ...",
    "GITHUB_TOKEN=ghp_xxx",
    "AKIA and ASIA are beginnings",
    "https://user:password@host.example/x",
    "password = os.environ['TOKEN']",
    "[pypi]\npassword = ${PYPI_PASSWORD}\n",
    "machine learning needs no login and no password",
    ":_authToken=${NPM_TOKEN}",
    LETTERS,
]


@pytest.mark.parametrize("text", SAMPLES.values(), ids=SAMPLES)
def test_every_kind_is_found(tmp_path: Path, text: str) -> None:
    root = variant(tmp_path, files={"data.json": f"# one\n# two\n{text}\n"})
    (found, *_) = findings(root, "KB456")
    assert found.path.endswith("data.json")
    assert found.line is not None
    assert found.line >= 3


PLACEHOLDERS = [
    "hf_" + "X" * 34,
    "hf_" + "x" * 34,
    "hf_" + "0" * 30 + "1234",
    "hf_" + "yourToken" * 3 + "YourTok",
    "ghp_" + "x" * 36,
    "ghp_" + "xX" * 18,
    "github_" + "pat_" + "x" * 22 + "_" + "x" * 59,
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AKIA" + "XXXXXXXXXXXX1234",
    "aws_secret_" + "access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "sk-" + "...your key here",
    "sk-" + "proj-your-key-goes-here-" + "x" * 40,
    "sk-" + "ant-api03-" + "your-api-key-" * 8,
    "AIza" + "REPLACE_WITH_A_KEY_OF_YOURS_IN_THE_C",
    f"{KEY}\nYOUR PRIVATE KEY HERE\n",
    f"{KEY}\nxxxxxxxxxxxxxxxxxxxxxxxx\n",
    f"{KEY}\n...\n",
    "machine host.example login me pass" + "word xxxxxxxx\n",
    "[pypi]\nusername = me\npass" + "word = your-password\n",
    "https://x-access-" + "token:YOUR_TOKEN_OF_HOST@host/owner/name.git",
    "//host/:_auth" + "Token=xxxxxxxx-xxxx-xxxx",
    "dop" + f"_v1_{'0' * 64}",
    "xoxb-" + "000000000000-" + "X" * 24,
]


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_placeholders_are_none_and_hide_none(tmp_path: Path, text: str) -> None:
    assert codes(variant(tmp_path, files={"use.py": f"{text}\n"}), "KB456") == []
    both = variant(tmp_path / "both", files={"use.py": f"{text}\n{SAMPLES['AWS']} {HUB}\n{SAMPLES['GitHub']}\n"})
    assert {found.line for found in findings(both, "KB456")} >= {text.count("\n") + 2, text.count("\n") + 3}


def test_random_tokens_are_no_placeholders(tmp_path: Path) -> None:
    made = random.Random(12)  # noqa: S311  (the same every time)
    letters = string.ascii_letters + string.digits
    for kind, (beginning, length, alphabet) in enumerate(
        [("hf_", 34, letters), ("AKIA", 16, letters[26:]), ("dop" + "_v1_", 64, "0123456789abcdef")]
    ):
        for number in range(100):
            file = tmp_path / f"{kind}-{number}"
            file.write_text(beginning + "".join(made.choices(alphabet, k=length)))
            assert list(secrets_in(file)), file.read_text()


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_one_is_not(tmp_path: Path, text: str) -> None:
    assert codes(variant(tmp_path, files={"use.py": f"{text}\n"}), "KB456") == []


def zipped(text: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("deep/inside.txt", "x" * 5000 + f"\n{text}\n")
    return buffer.getvalue()


FORMS = {
    "binary": b"\x7f\x00\x01" * 2000 + b"\0" + HUB.encode() + b"\0",
    "UTF-16": f"token = {HUB}\n".encode("utf-16"),
    "UTF-16 without a mark": f"token = {HUB}\n".encode("utf-16-be"),
    "UTF-32": f"token = {HUB}\n".encode("utf-32"),
    "zip": zipped(HUB),
    "gzip": gzip.compress(f"{'x' * 9000} {HUB}".encode()),
    "xz": lzma.compress(f"{'x' * 9000} {HUB}".encode()),
    "beyond a megabyte": b"\n" * (3 << 20) + HUB.encode(),
    "where two pieces meet": b"\n" * ((4 << 20) - 15) + HUB.encode() + b"\n" * 100,
}


@pytest.mark.parametrize("content", FORMS.values(), ids=FORMS)
def test_it_does_not_matter_what_a_file_is(tmp_path: Path, content: bytes) -> None:
    assert codes(variant(tmp_path, files={"weights.bin": content}), "KB456") == ["KB456"]
    damaged = variant(tmp_path / "damaged", files={"weights.bin": content[: len(content) // 3]})
    assert codes(damaged, "KB456") == []


def test_a_token_in_a_library_is_found(tmp_path: Path, workshop: Workshop) -> None:
    library = workshop.library(f'const char *t(void) {{ return "{HUB}"; }}')
    root = variant(tmp_path, files={"_my_kernel_cuda_1a2b3c4.abi3.so": library.read_bytes()})
    assert codes(root, "KB456") == ["KB456"]


@pytest.mark.parametrize(
    "path",
    [
        *(".env", ".ENV", "prod.env", ".env.local", ".netrc", ".npmrc", ".pypirc", "sub/id_ed25519", "kubeconfig"),
        *("k.ppk", ".aws/credentials", "x/.docker/config.json", ".cache/huggingface/token"),
    ],
)
def test_names_that_say_it(tmp_path: Path, path: str) -> None:
    assert codes(variant(tmp_path, files={path: "x"}), "KB456") == ["KB456"]


@pytest.mark.parametrize("path", [".env.example", "sample.env", "credentials.py", "config.json", "token", "env.py"])
def test_names_that_do_not(tmp_path: Path, path: str) -> None:
    assert codes(variant(tmp_path, files={path: "x"}), "KB456") == []


@pytest.mark.parametrize("folder", [".git", ".svn", ".hg", "sub/.git"])
def test_folders_of_version_control_are_refused_whatever_is_in_them(tmp_path: Path, folder: str) -> None:
    root = variant(tmp_path, files={f"{folder}/objects/ab/cdef": b"x\x9cK", f"{folder}/config": "[core]\n"})
    (found,) = findings(root, "KB456")
    assert "everything that was ever committed" in found.message


def test_memory_stays_flat_and_holes_are_not_read(tmp_path: Path) -> None:
    root = variant(tmp_path)
    with (root / "large.bin").open("wb") as file:
        file.write(b"\1" * (40 << 20))
        file.seek(40 << 30)
        file.write(HUB.encode())
    tracemalloc.start()
    assert codes(root, "KB456") == ["KB456"]
    assert tracemalloc.get_traced_memory()[1] < 24 << 20
    tracemalloc.stop()


def test_an_archive_that_unpacks_to_too_much_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_builder.check.secrets._MOST_UNPACKED", 1 << 20)
    for megabytes, expected in ((0.9, ["KB456"]), (20, [])):
        content = gzip.compress(b"\0" * int(megabytes * 2**20) + HUB.encode())
        assert codes(variant(tmp_path / str(megabytes), files={"bomb.gz": content}), "KB456") == expected


# --- before anything is installed ---

TOML = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch-noarch]
pyext = [{pyext}]
"""


@pytest.mark.parametrize(
    ("pyext", "path", "content"),
    [
        ("pem", "key.pem", SAMPLES["PEM"]),
        ("env", ".env", "PASSWORD=x"),
        ("bin", "weights.bin", f"\0\0{HUB}\0"),
        ("npmrc", ".npmrc", "x"),
        ("json", ".svn/entries.json", "{}"),
        ("json", "account.json", SAMPLES["PEM in JSON"]),
        ("", "LICENSE.key", SAMPLES["OpenSSH"]),
        ("", "notice", HUB),
    ],
)
def test_a_package_is_refused_before_it_is_built(
    tool: Tool, tmp_path: Path, pyext: str, path: str, content: str
) -> None:
    root = source(tmp_path, {path: content}, toml=TOML.format(pyext=f'"{pyext}"' if pyext else ""))
    for command in ("build", "check-config"):
        result = tool(command, root)
        assert result.code != 0
        assert "KB456" in result.stderr
        assert f"torch-ext/my_kernel/{path}" in result.stderr
    assert not (root / "build").exists() or list((root / "build").iterdir()) == []


@pytest.mark.parametrize(("target", "content"), [("../../.env", "A=1"), ("../../.git/config", "[core]\n")])
def test_a_link_is_judged_by_what_it_leads_to(tool: Tool, tmp_path: Path, target: str, content: str) -> None:
    root = source(tmp_path, {}, toml=TOML.format(pyext='"json"'))
    link = root / "torch-ext/my_kernel/settings.json"
    link.symlink_to(target)
    (link.parent / target).parent.mkdir(exist_ok=True)
    (link.parent / target).write_text(content, encoding="utf-8")
    result = tool("build", root, "--no-load")
    assert result.code != 0
    assert "settings.json: KB456" in result.stderr
    assert not (root / "build").exists() or list((root / "build").iterdir()) == []


def test_what_an_upload_publishes_of_the_project_is_searched_too(tmp_path: Path) -> None:
    root = source(tmp_path, {}, toml=TOML.format(pyext=""))
    (root / "benchmarks").mkdir()
    (root / "benchmarks/benchmark.py").write_text(f"TOKEN = '{HUB}'\n", encoding="utf-8")
    (root / "CARD.md").write_text(f"\n{HUB}\n", encoding="utf-8")
    report = check_paths([root], select=["KB456"])
    assert [(finding.path.rpartition("/")[2], finding.line) for finding in report.findings] == [
        ("CARD.md", 2),
        ("benchmark.py", 1),
    ]
    assert json.dumps([finding.message for finding in report.findings]).count(HUB) == 0
