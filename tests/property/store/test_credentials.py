"""Credentials in the address of an index reach no message, whatever the address looks like."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernel_builder.errors import NetworkError
from kernel_builder.store.settings import IndexSettings, find_index, redact
from kernel_builder.store.transport import Transport

SECRET = "s3cr3tv4lue"  # noqa: S105

hosts = st.sampled_from(["127.0.0.1:9", "[::1]:9", "localhost:9", "no-such-host.invalid", "", "a b", "[::1", "h:port"])
schemes = st.sampled_from(["http", "https", "ftp", "file", "HTTP", ""])
users = st.sampled_from(["user", "", "us%40er", "us@er", "__token__", "a/b"])
endings = st.sampled_from(["", "@", "%40x", ":x", "%3A", "@more", "#x", "?x", "/x", "\\x"])
paths = st.sampled_from(["/simple", "/", "", "/a/../b", "/simple/?x=1", "//x"])
extras = st.sampled_from(["", f"?token={SECRET}", f"#{SECRET}", f"?a=1&key={SECRET}#frag"])
prefixes = st.sampled_from(["", "name=", " "])


def address(scheme: str, user: str, ending: str, host: str, path: str, extra: str) -> str:
    return f"{scheme}://{user}:{SECRET}{ending}@{host}{path}{extra}"


@given(schemes, users, endings, hosts, paths, extras)
@example("http", "user", "@", "127.0.0.1:9", "/simple", "")
def test_a_redacted_address_has_no_secret(
    scheme: str, user: str, ending: str, host: str, path: str, extra: str
) -> None:
    assert SECRET not in redact(address(scheme, user, ending, host, path, extra))


@settings(deadline=None)
@given(prefixes, schemes, users, endings, hosts, paths, extras)
def test_settings_tell_no_secret_and_neither_does_their_error(
    prefix: str, scheme: str, user: str, ending: str, host: str, path: str, extra: str
) -> None:
    environment = {"KERNEL_BUILDER_INDEX_URL": prefix + address(scheme, user, ending, host, path, extra)}
    assert SECRET not in _told(environment)


def _told(environment: dict[str, str]) -> str:
    """All that people may see of the settings, or of what is wrong with them."""
    try:
        found = find_index(environment)
    except NetworkError as error:
        return f"{error.message} {error.hint} {error!r}"
    return f"{found!r} {redact(found.address)}"


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(["http", "https"]), users, extras)
def test_a_transfer_that_fails_tells_no_secret(scheme: str, user: str, extra: str) -> None:
    settings = IndexSettings(url="http://127.0.0.1:9/simple", origin="test", credentials=("user", SECRET))
    transport = Transport(settings, backoff=0.0)
    with pytest.raises(NetworkError) as caught:
        transport.range_size(f"{scheme}://{user}:{SECRET}@127.0.0.1:9/simple{extra}")
    transport.close()
    assert SECRET not in f"{caught.value.message} {caught.value.hint} {caught.value!r}"


@given(schemes, hosts, paths)
def test_a_token_without_user_is_a_secret_too(scheme: str, host: str, path: str) -> None:
    assert SECRET not in redact(f"{scheme}://{SECRET}@{host}{path}")


@pytest.mark.parametrize("url", ["https://host/simple", "http://127.0.0.1:8080/files/a@b.whl", "https://h/@scope/x"])
def test_an_address_without_credentials_stays_as_it_is(url: str) -> None:
    assert redact(url) == url
