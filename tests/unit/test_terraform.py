"""The Terraform module: what can be said of it without Terraform, and what its machine runs, run here."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT

yaml = pytest.importorskip("yaml")
hcl2 = pytest.importorskip("hcl2", reason="python-hcl2 is not installed; the extra 'dev' has it")

# To read the module takes seconds, in each process that does.
pytestmark = pytest.mark.xdist_group("terraform")

MODULE = ROOT / "terraform"
FILES = sorted(MODULE.glob("*.tf"))
TEMPLATE = MODULE / "user-data.yaml.tftpl"


@functools.cache
def _read(file: Path) -> dict[str, list[dict[str, Any]]]:
    return dict(hcl2.loads(file.read_text(encoding="utf-8")))


def _blocks(kind: str) -> dict[str, dict[str, Any]]:
    """The blocks of a kind that have one label, by that label."""
    found: dict[str, dict[str, Any]] = {}
    for file in FILES:
        for block in _read(file).get(kind, []):
            found.update({json.loads(label): body for label, body in block.items()})
    return found


def _text() -> str:
    return "".join(file.read_text(encoding="utf-8") for file in FILES)


def test_every_variable_is_described_typed_and_used() -> None:
    declared = _blocks("variable")
    used = set(re.findall(r"\bvar\.(\w+)", _text()))
    assert used == set(declared)
    elsewhere = (MODULE / "main.tf").read_text() + (MODULE / "outputs.tf").read_text()
    for name, body in declared.items():
        assert {"description", "type"} <= body.keys(), name
        assert f"var.{name}" in elsewhere, name
        for validation in body.get("validation", []):
            assert f"var.{name}" in validation["condition"]
    assert all("description" in body for body in _blocks("output").values())


def _accepts(variable: str, value: str) -> bool:
    """Whether the regular expressions of a variable's validations accept ``value``."""
    answers = []
    for validation in _blocks("variable")[variable]["validation"]:
        for negated, pattern in re.findall(r'(!?)can\(regex\("((?:[^"\\]|\\.)*)"', validation["condition"]):
            answers.append((re.search(json.loads(f'"{pattern}"'), value) is None) == bool(negated))
    assert answers
    return all(answers)


@pytest.mark.parametrize(
    ("variable", "good", "bad"),
    [
        (
            "repository",
            ["https://huggingface.co/me/my-kernel", "https://git.example/a/b.git"],
            ["https://me:secret@git.example/a", "https://token@git.example/a", "git@git.example:a/b", "http://a", ""],
        ),
        ("kernel_builder", ["kernel-builder==0.1.0", "kernel-builder @ https://a/b.whl"], ["-r x", "https://u:p@a/b"]),
        ("hub_token_parameter", ["/kernel-builder/hub-token"], ["hf_abcdefghij", ""]),
        ("ssh_public_key", ["ssh-ed25519 AAAA me"], ["-----BEGIN OPENSSH PRIVATE KEY-----", "ssh-ed25519"]),
        ("revision", ["main", "v1.0", "feature/x", "0a1b2c"], ["--upload-pack=x", "", "a b"]),
        ("directory", [".", "kernels/relu"], ["/etc", "", "-x"]),
        ("name", ["kernel-builder"], ["a", "A-name", "name-"]),
    ],
)
def test_what_would_put_a_secret_into_the_state_or_an_option_into_a_command_is_refused(
    variable: str, good: list[str], bad: list[str]
) -> None:
    assert [value for value in good if not _accepts(variable, value)] == []
    assert [value for value in bad if _accepts(variable, value)] == []


def _user_data(**values: str) -> str:
    """The template as Terraform fills it in: it has nothing but names in ``${}``."""
    text = TEMPLATE.read_text(encoding="utf-8")
    assert "%{" not in text
    return re.sub(r"\$\{(.*?)\}", lambda found: values[found[1]], text)


def _filled_in(command: list[str]) -> str:
    encoded = base64.b64encode(b"#!/bin/sh\n").decode()
    return _user_data(
        install_script=encoded,
        build_script=encoded,
        environment=encoded,
        packages=json.dumps(["git", "g++"]),
        command=json.dumps(command),
        when_ended=json.dumps(["true"]),
    )


def test_what_the_template_asks_for_is_what_it_is_given() -> None:
    (locals_,) = hcl2.loads((MODULE / "main.tf").read_text(encoding="utf-8"))["locals"]
    given = set(re.findall(r"(?:\{|, )(\w+) = ", locals_["user_data"]))
    assert given == set(re.findall(r"\$\{(\w+)\}", TEMPLATE.read_text(encoding="utf-8")))


def test_words_of_the_command_stay_words_whatever_they_hold() -> None:
    command = ["runuser", "a b", 'quote " and \\', "$(reboot)", "# no comment", "- x: y", "naïve", ""]
    data = yaml.safe_load(_filled_in(command))
    assert data["runcmd"] == [command, ["true"]]
    assert [file["path"] for file in data["write_files"]][-1] == "/etc/kernel-builder.env"


def test_cloud_init_takes_the_user_data(tmp_path: Path) -> None:
    cloud_init = shutil.which("cloud-init")
    if cloud_init is None:
        pytest.skip("cloud-init is not installed")
    file = tmp_path / "user-data"
    file.write_text(_filled_in(["runuser", "-u", "builder", "--", "x"]), encoding="utf-8")
    completed = subprocess.run(
        [cloud_init, "schema", "--config-file", file], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_user_data_is_not_too_long() -> None:
    """A machine takes 16 KiB. They are sent compressed; here they are not, so this errs on the safe side."""
    sizes = [len(base64.b64encode((path).read_bytes())) for path in (ROOT / "install.sh", MODULE / "build-kernel")]
    assert sum(sizes) + len(TEMPLATE.read_bytes()) < 14_000


def test_terraform_is_content() -> None:
    terraform = shutil.which("terraform") or shutil.which("tofu")
    if terraform is None:
        pytest.skip("neither terraform nor tofu is installed")
    completed = subprocess.run(
        [terraform, "fmt", "-check", "-diff", MODULE], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


class Machine:
    """The builder's home, with stand-ins for what the network brings: the installer, kernel-builder and aws."""

    def __init__(self, root: Path, settings: str = "") -> None:
        self.home, self.calls = root / "home", root / "calls"
        tools = self.home / ".local" / "bin"
        tools.mkdir(parents=True)
        _script(
            tools / "kernel-builder",
            "branch=$(git rev-parse --abbrev-ref HEAD)\n"
            f'echo "kernel-builder $* in $(pwd) at $branch token=${{HF_TOKEN:-}}" >> {self.calls}\n'
            'case "$1" in\n'
            "  build) mkdir build; touch build/made; [ ! -e fails ] || exit 1 ;;\n"
            "esac\n",
        )
        _script(
            tools / "aws",
            f'echo "aws $*" >> {self.calls}\n[ "$1" != ssm ] || echo hf_the_token\n',
        )
        _script(root / "install.sh", f'echo "install $KERNEL_BUILDER_REQUIREMENT" >> {self.calls}\n')
        (root / "env").write_text(f"KERNEL_BUILDER_REQUIREMENT=kernel-builder==0.1.0\n{settings}", encoding="utf-8")
        self.environment = {
            **os.environ,
            "HOME": str(self.home),
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "KERNEL_BUILDER_ENV": str(root / "env"),
            "KERNEL_BUILDER_INSTALLER": str(root / "install.sh"),
            **{f"GIT_{who}_{what}": "me@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        self.repository = root / "repository"
        self.git("init", "--quiet", "--initial-branch=main", self.repository, cwd=root)

    def git(self, *words: str | Path, cwd: Path | None = None) -> None:
        subprocess.run(["git", *words], cwd=cwd or self.repository, env=self.environment, check=True)

    def commit(self, *names: str) -> None:
        for name in names:
            (self.repository / name).parent.mkdir(parents=True, exist_ok=True)
            (self.repository / name).touch()
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", "files")

    def build(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [MODULE / "build-kernel", self.repository, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )


def _script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    file.chmod(0o755)


def test_the_machine_installs_clones_builds_and_checks(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.commit("a kernel/build.toml")
    machine.git("branch", "other")
    completed = machine.build("other", "a kernel", "--variant", "torch213-*")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    where = f"in {machine.home}/work/a kernel at other token="
    assert machine.calls.read_text().splitlines() == [
        "install kernel-builder==0.1.0",
        f"kernel-builder doctor {where}",
        f"kernel-builder build --variant torch213-* {where}",
        f"kernel-builder check {where}",
    ]
    assert (machine.home / "build.log").read_text().splitlines()[-1] == "kernel-builder on this machine ended with 0"


def test_the_token_is_read_on_the_machine_for_the_upload_alone_and_written_nowhere(tmp_path: Path) -> None:
    machine = Machine(
        tmp_path, "HUB_TOKEN_PARAMETER=/kb/token\nRESULTS=s3://bucket/name\nAWS_DEFAULT_REGION=eu-west-1\n"
    )
    machine.commit("build.toml")
    completed = machine.build("", ".")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    calls = machine.calls.read_text()
    with_token = [line for line in calls.splitlines() if "token=hf_the_token" in line]
    assert [line.split(" in ")[0] for line in with_token] == ["kernel-builder upload"]
    assert "hf_the_token" not in completed.stdout + (machine.home / "build.log").read_text()
    assert f"s3 cp --only-show-errors {machine.home}/build.log s3://bucket/name/build.log" in calls


def test_a_build_that_fails_uploads_nothing_and_its_log_is_kept(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "HUB_TOKEN_PARAMETER=/kb/token\nRESULTS=s3://bucket/name\n")
    machine.commit("build.toml", "fails")
    completed = machine.build("", ".")
    assert completed.returncode == 1
    assert completed.stdout.endswith("kernel-builder on this machine ended with 1\n")
    calls = machine.calls.read_text()
    assert ("kernel-builder upload" in calls, "ssm" in calls) == (False, False)
    assert "/build.log s3://bucket/name/build.log" in calls
    assert machine.build().returncode == 2
