"""Where the index address comes from, and that credentials stay out of sight."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.errors import NetworkError
from kernel_builder.store.settings import find_index, index_at, redact
from kernel_builder.store.transport import Transport


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "uv").mkdir(parents=True)
    return tmp_path


def isolated(home: Path, **variables: str) -> dict[str, str]:
    return {"XDG_CONFIG_DIRS": str(home / "nothing"), "PIP_CONFIG_FILE": str(home / "extra.conf"), **variables}


def test_own_variable_wins_over_pip_and_uv(home: Path) -> None:
    environment = isolated(
        home, KERNEL_BUILDER_INDEX_URL="https://a/s", PIP_INDEX_URL="https://b/s", UV_DEFAULT_INDEX="https://c/s"
    )
    assert find_index(environment, home).url == "https://a/s"
    del environment["KERNEL_BUILDER_INDEX_URL"]
    assert find_index(environment, home).url == "https://b/s"
    del environment["PIP_INDEX_URL"]
    assert find_index(environment, home).url == "https://c/s"


def test_pip_configuration_is_read_and_later_files_win(home: Path) -> None:
    (home / ".config" / "pip" / "pip.conf").write_text("[global]\nindex-url = https://user-file/simple\n")
    found = find_index(isolated(home), home)
    assert (found.url, found.origin) == ("https://user-file/simple", str(home / ".config/pip/pip.conf"))
    (home / "extra.conf").write_text("[global]\nindex-url = https://named-file/simple\n")
    assert find_index(isolated(home), home).url == "https://named-file/simple"


def test_pip_configuration_can_be_switched_off(home: Path) -> None:
    (home / ".config" / "pip" / "pip.conf").write_text("[global]\nindex-url = https://user-file/simple\n")
    assert find_index(isolated(home, PIP_CONFIG_FILE="/dev/null"), home).origin == "default"


def test_uv_default_index_is_read_after_pip(home: Path) -> None:
    (home / ".config" / "uv" / "uv.toml").write_text(
        '[[index]]\nurl = "https://extra/simple"\n[[index]]\nurl = "https://main/simple"\ndefault = true\n'
    )
    assert find_index(isolated(home), home).url == "https://main/simple"
    assert find_index(isolated(home, UV_DEFAULT_INDEX="corp=https://env/simple"), home).url == "https://env/simple"


def test_certificates_come_from_pips_variable_then_the_others_then_its_configuration(home: Path) -> None:
    (home / "extra.conf").write_text("[global]\ncert = /conf.pem\n")
    assert find_index(isolated(home), home).certificates == Path("/conf.pem")
    assert find_index(isolated(home, SSL_CERT_FILE="/ssl.pem"), home).certificates == Path("/ssl.pem")
    environment = isolated(home, SSL_CERT_FILE="/ssl.pem", PIP_CERT="/pip.pem")
    assert find_index(environment, home).certificates == Path("/pip.pem")


def test_credentials_are_kept_apart_and_never_shown(home: Path) -> None:
    found = find_index(isolated(home, PIP_INDEX_URL="https://me:s%40cret@host:8443/simple"), home)
    assert found.url == "https://host:8443/simple"
    assert found.credentials == ("me", "s@cret")
    assert "cret" not in repr(found)


@pytest.mark.parametrize("url", ["https://me:secret@h/p?token=secret#secret", "https://secret@h/p"])
def test_redacted_addresses_hold_no_secret(url: str) -> None:
    assert redact(url) == "https://h/p"


def test_an_address_of_another_kind_is_refused_without_showing_its_password(home: Path) -> None:
    with pytest.raises(NetworkError) as caught:
        find_index(isolated(home, PIP_INDEX_URL="ftp://me:secret@host/simple"), home)
    assert "PIP_INDEX_URL" in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "url", ["http://", "https:///simple", "https://me:secret@/simple", "https://host:99999/", "https://a host/simple"]
)
def test_an_address_without_a_server_is_refused_before_anything_is_sent(home: Path, url: str) -> None:
    with pytest.raises(NetworkError, match="which has no host name") as caught:
        find_index(isolated(home, PIP_INDEX_URL=url), home)
    assert "secret" not in caught.value.message
    assert "KERNEL_BUILDER_INDEX_URL" in str(caught.value.hint)
    with pytest.raises(NetworkError, match="the index 'mine'") as caught:
        index_at(url, "mine", isolated(home), home)
    assert "kernel-builder.toml" in str(caught.value.hint)


def test_the_hint_names_the_place_where_the_address_was_written(home: Path) -> None:
    own = index_at("http://127.0.0.1:1/simple", "mine", isolated(home), home)
    configured = find_index(isolated(home, PIP_INDEX_URL="http://127.0.0.1:1/simple"), home)
    for settings, place in ((own, "kernel-builder.toml"), (configured, "KERNEL_BUILDER_INDEX_URL")):
        with pytest.raises(NetworkError, match="no connection") as caught:
            Transport(settings).get("http://127.0.0.1:1/simple/", {})
        assert caught.value.hint == f"check your network connection, or set a mirror in {place}"


def test_a_server_that_cannot_be_reached_is_not_tried_for_the_next_file(home: Path) -> None:
    transport = Transport(index_at("http://127.0.0.1:1/simple", "mine", isolated(home), home))
    messages = []
    for page in ("a/", "b/"):
        with pytest.raises(NetworkError) as caught:
            transport.get(f"http://127.0.0.1:1/simple/{page}", {})
        messages.append(caught.value.message)
    assert messages[1] == messages[0].replace("/a/", "/b/")
    assert transport.requests == 1
    with pytest.raises(NetworkError):
        transport.get("http://127.0.0.1:2/simple/", {})
    assert transport.requests == 2
