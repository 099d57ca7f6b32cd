"""What a variant lacks is told at once: libraries that its sections depend on, and parts of its toolchain."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel_builder.errors import IntegrityError, KernelBuilderError, NetworkError, ToolchainError
from kernel_builder.toolchain.deciding import all_of
from kernel_builder.workflow.toolchains import _refuse

LIBRARY = ToolchainError("cutlass_9 cannot be provided", hint="get it")
TORCH = ToolchainError("no source has torch 2.99", hint="name an index")
SILENT = NetworkError("the index does not answer", hint="wait")
SILENT_TOO = NetworkError("the other index does not answer")
WRONG = IntegrityError("the file is another")


def fails(error: Exception) -> Callable[[], None]:
    def choose() -> None:
        raise error

    return choose


def refused(*errors: ToolchainError | NetworkError, choose: Callable[[], object]) -> KernelBuilderError:
    with pytest.raises((ToolchainError, NetworkError)) as caught:
        _refuse(errors, choose)
    return caught.value


def test_libraries_and_toolchains_are_told_together() -> None:
    error = refused(LIBRARY, choose=fails(TORCH))
    assert (error.message, error.hint) == (
        "cutlass_9 cannot be provided\nno source has torch 2.99",
        "get it; name an index",
    )
    assert isinstance(error, ToolchainError)


@pytest.mark.parametrize("choose", [lambda: None, fails(SILENT)])
def test_what_is_lacking_for_sure_is_told_whatever_servers_do(choose: Callable[[], object]) -> None:
    assert refused(LIBRARY, choose=choose) is LIBRARY


@pytest.mark.parametrize("further", [TORCH, SILENT_TOO])
def test_a_library_whose_server_is_silent_does_not_hide_the_rest(further: ToolchainError | NetworkError) -> None:
    error = refused(LIBRARY, SILENT, choose=fails(further))
    assert isinstance(error, NetworkError)
    assert error.message.splitlines() == [LIBRARY.message, SILENT.message, further.message]


def test_where_a_file_is_wrong_nothing_else_is_asked() -> None:
    assert refused(LIBRARY, WRONG, choose=fails(AssertionError("asked"))) is WRONG
    assert refused(LIBRARY, SILENT, choose=fails(WRONG)) is WRONG


def test_a_wrong_file_is_told_alone_and_the_same_reason_once() -> None:
    assert all_of([LIBRARY, WRONG, SILENT]) is WRONG
    assert all_of([LIBRARY, LIBRARY]).message == LIBRARY.message
