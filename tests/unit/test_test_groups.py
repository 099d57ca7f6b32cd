"""How the test suite itself is spread over processes."""

import pytest


@pytest.fixture(scope="module")
def costly() -> str:
    """What two tests share, so that they belong to one process."""
    return "made once"


@pytest.mark.parametrize("number", [1, 2])
def test_tests_that_share_a_fixture_of_their_module_are_one_group(
    number: int, costly: str, request: pytest.FixtureRequest
) -> None:
    """``--dist loadgroup`` knows a group by the end of the tests' names, where releases of pytest and of pytest-xdist
    that do not fit say nothing.
    """
    is_grouped = bool(request.config.getoption("loadgroup", default=False))
    assert request.node.nodeid.endswith("@test_test_groups") == is_grouped, (number, costly)
