"""Reading kernel-builder.toml: what counts, and every mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.cli.options import HOST_COMPILERS
from kernel_builder.config.settings import FILE_NAME
from kernel_builder.errors import ConfigError, UsageError
from kernel_builder.toolchain.model import HostChoice
from kernel_builder.toolchain.settings import Place, ToolchainSettings, load_settings


def load(
    project: str | None = None,
    user: str | None = None,
    *,
    tmp_path: Path,
    sources: tuple[str, ...] = (),
    **environ: str,
) -> ToolchainSettings:
    root, config = tmp_path / "project", tmp_path / "config.toml"
    root.mkdir(exist_ok=True)
    if project is not None:
        (root / FILE_NAME).write_text(project, encoding="utf-8")
    if user is not None:
        config.write_text(user, encoding="utf-8")
        environ["KERNEL_BUILDER_CONFIG"] = str(config)
    else:
        empty = tmp_path / "empty.toml"
        empty.touch()
        environ["KERNEL_BUILDER_CONFIG"] = str(empty)
    if sources:
        environ["KERNEL_BUILDER_SOURCES"] = ",".join(sources)
    return load_settings(root, environ)


def mistakes(text: str, tmp_path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path=tmp_path)
    return [diagnostic.render() for diagnostic in caught.value.diagnostics]


def test_without_files_every_built_in_source_is_asked_this_machine_last(tmp_path: Path) -> None:
    settings = load(tmp_path=tmp_path)
    assert (settings.order, settings.usual) == (("index", "debian", "redistrib", "local"), True)
    assert settings.indexes == ()


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    settings = load(
        """
sources = ["local", "wheels", "index", "redistrib"]
[[index]]
name = "pytorch"
url = "https://user:secret@host.example/whl/cu118"
[[index]]
name = "wheels"
path = "wheels"
[redistrib]
path = "/mirror/redist"
[debian]
mirror = "http://mirror.example/debian"
suites = ["trixie"]
keyring = "keys.gpg"
""",
        '[local]\ntoolkits = ["/opt/cuda-12.4"]\n',
        tmp_path=tmp_path,
    )
    root = tmp_path / "project"
    assert settings.order == ("local", "wheels", "index", "redistrib")
    assert [(index.name, str(index.place)) for index in settings.indexes] == [
        ("pytorch", "https://host.example/whl/cu118"),
        ("wheels", str(root / "wheels")),
    ]
    assert settings.redistrib == Place(path=Path("/mirror/redist"))
    assert settings.debian_mirror == Place(url="http://mirror.example/debian")
    assert (settings.debian_suites, settings.debian_keyring) == (("trixie",), root / "keys.gpg")
    assert settings.toolkits == (Path("/opt/cuda-12.4"),)
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    "text",
    ['[local]\ntoolkits = ["/opt/mine"]\n', '[local]\ntoolkits = ["t"]\n', 'local = { toolkits = ["../x"] }\n'],
)
def test_a_project_cannot_name_programs(text: str, tmp_path: Path) -> None:
    (mistake,) = mistakes(text, tmp_path)
    assert "kernel-builder.toml:" in mistake
    assert "a project cannot choose programs on this machine" in mistake
    assert f"move it to your own file, {tmp_path / 'empty.toml'}" in mistake
    assert len(load(user=text, project="", tmp_path=tmp_path).toolkits) == 1


def test_the_users_own_file_is_the_users_under_any_name(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(
        '[local]\ntoolkits = ["/opt/mine"]\n[[index]]\nname = "mine"\npath = "w"\n', encoding="utf-8"
    )
    environ = {"KERNEL_BUILDER_CONFIG": str(tmp_path / FILE_NAME)}
    settings = load_settings(tmp_path, environ)
    assert (settings.toolkits, settings.by_project) == ((Path("/opt/mine"),), frozenset())


def test_what_a_project_names_is_known(tmp_path: Path) -> None:
    user = '[[index]]\nname = "a"\npath = "/a"\n[[index]]\nname = "b"\npath = "/b"\n[redistrib]\nurl = "https://u.example/"\n'
    assert load("", user, tmp_path=tmp_path).by_project == frozenset()
    text = '[[index]]\nname = "b"\npath = "own"\n[redistrib]\npath = "r"\n[debian]\nmirror = "http://p.example/d"\n'
    assert load(text, user, tmp_path=tmp_path).by_project == {"b", "redistrib", "debian"}
    mine = "https://mine.example/"
    assert load(text, user, tmp_path=tmp_path, KERNEL_BUILDER_REDISTRIB=mine).by_project == {"b", "debian"}
    assert load('[debian]\nkeyring = "keys.gpg"\n', tmp_path=tmp_path).by_project == {"debian"}
    assert load('sources = ["index", "redistrib"]\n', tmp_path=tmp_path).by_project == frozenset()


def test_further_indexes_are_asked_behind_the_configured_one(tmp_path: Path) -> None:
    settings = load('[[index]]\nname = "mine"\nurl = "https://host.example/simple"\n', tmp_path=tmp_path)
    assert settings.order == ("index", "mine", "debian", "redistrib", "local")


def test_further_repositories_are_sources_of_their_own(tmp_path: Path) -> None:
    text = """
[[index]]
name = "mine"
url = "https://host.example/simple"
[[repository]]
name = "vendor"
url = "https://user:secret@host.example/apt/7.1"
suite = "noble"
keyring = "vendor.asc"
[[repository]]
name = "frozen"
path = "mirror"
suite = "sid"
component = "contrib"
keyring = "/keys.gpg"
check-valid-until = false
[debian]
check-valid-until = false
"""
    settings = load(
        text, '[[repository]]\nname = "vendor"\npath = "/v"\nsuite = "s"\nkeyring = "/k"\n', tmp_path=tmp_path
    )
    vendor, frozen = settings.repositories
    assert settings.order == ("index", "mine", "vendor", "frozen", "debian", "redistrib", "local")
    assert (str(vendor.place), vendor.suite, vendor.component) == ("https://host.example/apt/7.1", "noble", "main")
    assert (vendor.keyring, vendor.expires) == (tmp_path / "project" / "vendor.asc", True)
    assert (frozen.component, frozen.keyring, frozen.expires) == ("contrib", Path("/keys.gpg"), False)
    assert not settings.debian_expires
    assert settings.by_project == {"mine", "vendor", "frozen", "debian"}
    assert "secret" not in repr(settings)


def test_every_mistake_in_a_repository_is_told(tmp_path: Path) -> None:
    text = '[[repository]]\nname = "debian"\nurl = "https://h.example/apt"\nsuite = "a"\nkeyring = "k"\n'
    text += '[[index]]\nname = "b"\npath = "w"\n[[repository]]\nname = "b"\npath = "a"\ncheck-valid-until = "no"\n'
    told = "\n".join(mistakes(text, tmp_path))
    assert "'debian' is the name of a built-in source" in told
    assert "'b' appears twice" in told
    assert "suite: is missing" in told
    assert "keyring: is missing" in told
    assert "must be true or false, not the string" in told
    (mistake,) = mistakes('repository = "x"\n', tmp_path)
    assert "must be a list of tables" in mistake


def test_a_mirror_changes_no_order_and_a_named_order_is_not_the_usual_one(tmp_path: Path) -> None:
    mirror = load(tmp_path=tmp_path, KERNEL_BUILDER_REDISTRIB="https://host.example/redist")
    assert (mirror.order, mirror.usual) == (("index", "debian", "redistrib", "local"), True)
    named = load('sources = ["index", "redistrib"]\n', tmp_path=tmp_path)
    assert (named.order, named.usual, named.redistrib) == (("index", "redistrib"), False, None)
    assert not load(tmp_path=tmp_path, sources=("index", "local")).usual


def test_the_project_wins_over_the_user_key_by_key(tmp_path: Path) -> None:
    user = '[[index]]\nname = "a"\npath = "/users/a"\n[[index]]\nname = "b"\npath = "/users/b"\n'
    user += '[debian]\nmirror = "http://user.example/debian"\n[redistrib]\nurl = "https://user.example/"\n'
    project = '[[index]]\nname = "b"\npath = "/projects/b"\n[redistrib]\nurl = "https://project.example/"\n'
    settings = load(project, user, tmp_path=tmp_path)
    assert [(index.name, str(index.place)) for index in settings.indexes] == [("b", "/projects/b"), ("a", "/users/a")]
    assert str(settings.redistrib) == "https://project.example/"
    assert str(settings.debian_mirror) == "http://user.example/debian"
    assert len(settings.files) == 2


def test_a_projects_order_may_name_an_index_of_the_users_file(tmp_path: Path) -> None:
    user = '[[index]]\nname = "mine"\npath = "/wheels"\n'
    assert load('sources = ["mine"]\n', user, tmp_path=tmp_path).order == ("mine",)
    with pytest.raises(ConfigError, match="unknown source 'mine'"):
        load('sources = ["mine"]\n', tmp_path=tmp_path)


def test_the_environment_and_options_win(tmp_path: Path) -> None:
    project = 'sources = ["index"]\n[debian]\nmirror = "http://project.example/debian"\n'
    settings = load(
        project,
        tmp_path=tmp_path,
        KERNEL_BUILDER_SOURCES="local, debian",
        KERNEL_BUILDER_DEBIAN_MIRROR="/mirror/debian",
    )
    assert settings.order == ("local", "debian")
    assert settings.debian_mirror == Place(path=Path("/mirror/debian"))
    assert load(project, tmp_path=tmp_path, sources=("debian",)).order == ("debian",)
    with pytest.raises(UsageError, match="unknown source 'nowhere'"):
        load(project, tmp_path=tmp_path, KERNEL_BUILDER_SOURCES="nowhere")


def test_the_host_compiler_comes_from_the_option_the_environment_or_a_file(tmp_path: Path) -> None:
    user, project = 'host-compiler = "clang"\n', 'host-compiler = "gcc"\n'
    assert load(tmp_path=tmp_path).host_compiler is HostChoice.AUTO
    assert load(None, user, tmp_path=tmp_path).host_compiler is HostChoice.CLANG
    assert load(project, user, tmp_path=tmp_path).host_compiler is HostChoice.GCC
    settings = load(project, user, tmp_path=tmp_path, KERNEL_BUILDER_HOST_COMPILER="zig")
    assert settings.host_compiler is HostChoice.ZIG
    (tmp_path / "none.toml").touch()
    environ = {"KERNEL_BUILDER_HOST_COMPILER": "zig", "KERNEL_BUILDER_CONFIG": str(tmp_path / "none.toml")}
    assert load_settings(None, environ, host_compiler="auto").host_compiler is HostChoice.AUTO
    with pytest.raises(ConfigError) as caught:
        load('host-compiler = "msvc"\n', tmp_path=tmp_path)
    (mistake,) = caught.value.diagnostics
    assert "'msvc' is not a host compiler" in mistake.render()
    assert "auto, gcc, clang, zig" in mistake.render()


def test_the_command_line_offers_every_host_compiler() -> None:
    assert tuple(choice.value for choice in HostChoice) == HOST_COMPILERS


def test_all_mistakes_are_told_at_once_each_with_its_place(tmp_path: Path) -> None:
    found = mistakes(
        """sources = ["index", "index"]
sorces = []
[[index]]
url = "ftp://user:secret@host.example/"
[[index]]
name = "debian"
path = "x"
[[index]]
name = "both"
path = "x"
url = "https://host.example/"
[[index]]
name = "none"
[redistrib]
base = "https://host.example/"
[debian]
suites = "trixie"
mirror = 3
[local]
toolkits = [""]
""",
        tmp_path,
    )
    text = "\n".join(found)
    assert all(str(tmp_path / "project" / FILE_NAME) in line for line in found)
    for expected in (
        ":1:21: error: sources[1]: 'index' is listed twice",
        ":2:1: error: sorces: unknown key in [top level]\n    did you mean 'sources'?",
        "index[0].name: is missing",
        ":4:7: error: index[0].url: 'ftp://host.example/' is not an http or https URL",
        "index[1].name: 'debian' is the name of a built-in source",
        "cannot be combined with 'url'",
        "index[3]: has neither 'url' nor 'path'",
        "redistrib.base: unknown key in [redistrib]",
        "debian.suites: must be a list of strings",
        "debian.mirror: must be a string, not the number 3",
        "local.toolkits[0]: must not be empty",
    ):
        assert expected in text, f"{expected}\n\n{text}"
    assert "secret" not in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sources = [\n", "error"),
        ("debian = 1\n", "debian: must be a table, not the number 1"),
        ("index = 1\n", "index: must be a list of tables, not the number 1"),
        ("index = [1]\n", "index: must be a list of tables"),
        ('[[index]]\nname = "A b"\npath = "x"\n', "'A b' is not a valid name"),
        ('[[index]]\nname = "a"\npath = "x"\n[[index]]\nname = "a"\npath = "y"\n', "'a' appears twice"),
        ('[redistrib]\nurl = "nonsense"\n', "'nonsense' is not an http or https URL"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in "\n".join(mistakes(text, tmp_path))


@pytest.mark.parametrize(
    ("text", "expected", "hint"),
    [
        ("sources = []\n", "sources: lists no source", "remove it for the default order"),
        ("[redistrib]\n", "redistrib: has neither 'url' nor 'path'", 'list "redistrib" in sources instead'),
        ('[[index]]\nname = "a"\n', "index[0]: has neither 'url' nor 'path'", 'add: url = "https://host/simple"'),
        ('[[index]]\nurl = "https://h/"\n', "index[0].name: is missing", 'add: name = "mine"'),
        ('[[index]]\nname = "a"\npath = ""\n', "index[0].path: must not be empty", 'like "wheels"'),
        (
            '[[index]]\nname = "a"\nurl = "http://h:99999/"\n',
            "'http://h:99999/' is not an http or https URL",
            "https://",
        ),
        ('[[index]]\nname = "a"\npath = "~no-such-user/w"\n', "no such user", "write the full path"),
        ('[debian]\nkeyring = "~no-such-user/cuda"\n', "debian.keyring: '~no-such-user/cuda'", "write the full"),
        (
            '[debian]\nmirror = "file:///srv"\n',
            "'file:///srv' is not an http or https URL",
            "or the path of a directory",
        ),
        ('sources = ["index", 3]\n', "sources[1]: must be a string", '["index", "redistrib", "debian", "local"]'),
    ],
)
def test_a_mistake_comes_with_what_to_write(tmp_path: Path, text: str, expected: str, hint: str) -> None:
    (found,) = mistakes(text, tmp_path)
    message, _, rest = found.partition("\n")
    assert (expected in message, hint in rest) == (True, True), found


def test_a_file_that_a_variable_names_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"KERNEL_BUILDER_CONFIG names .*, which does not exist"):
        load_settings(None, {"KERNEL_BUILDER_CONFIG": str(tmp_path / "absent.toml")})
    with pytest.raises(ConfigError, match=r"KERNEL_BUILDER_CONFIG names .*, which is not a regular file"):
        load_settings(None, {"KERNEL_BUILDER_CONFIG": str(tmp_path)})


def test_a_settings_file_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "project" / FILE_NAME).mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"cannot read .*kernel-builder\.toml: Is a directory"):
        load(tmp_path=tmp_path)
    (tmp_path / "project" / FILE_NAME).rmdir()
    (tmp_path / "project" / FILE_NAME).symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"cannot read .*kernel-builder\.toml: No such file"):
        load(tmp_path=tmp_path)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("KERNEL_BUILDER_HOST_COMPILER", "msvc", "'msvc', which is not a host compiler"),
        ("KERNEL_BUILDER_REDISTRIB", "~no-such-user/redist", "no such user"),
        ("KERNEL_BUILDER_DEBIAN_MIRROR", "~no-such-user/debian", "no such user"),
        ("KERNEL_BUILDER_REDISTRIB", "ftp://me:secret@host/redist", "'ftp://host/redist', which is not an http"),
        ("KERNEL_BUILDER_DEBIAN_MIRROR", "http://", "'http://', which is not an http"),
    ],
)
def test_variables_are_judged_like_the_files(tmp_path: Path, variable: str, value: str, expected: str) -> None:
    empty = tmp_path / "empty.toml"
    empty.touch()
    with pytest.raises(UsageError) as caught:
        load_settings(tmp_path, {variable: value, "KERNEL_BUILDER_CONFIG": str(empty)})
    assert caught.value.message.startswith(f"{variable} is ")
    assert expected in caught.value.message
    assert "secret" not in caught.value.message
    with pytest.raises(UsageError, match="KERNEL_BUILDER_CONFIG is '~no-such-user/x': no such user"):
        load_settings(None, {"KERNEL_BUILDER_CONFIG": "~no-such-user/x"})


def test_a_source_that_is_named_twice_is_asked_once(tmp_path: Path) -> None:
    assert load(tmp_path=tmp_path, KERNEL_BUILDER_SOURCES="local,index,,local").order == ("local", "index")
    assert load(tmp_path=tmp_path, sources=("debian", "local", "debian")).order == ("debian", "local")


def test_mistakes_in_what_checks_accept_are_told_with_the_others(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load('sources = []\n[check]\naccept = { KB302 = "" }\n', tmp_path=tmp_path)
    assert [(one.key, one.line) for one in caught.value.diagnostics] == [("sources", 1), ("check.accept.KB302", 3)]


def test_only_a_project_accepts_what_checks_find(tmp_path: Path) -> None:
    accepting = '[check]\naccept = { KB302 = "why" }\n'
    load(accepting, tmp_path=tmp_path)
    with pytest.raises(ConfigError) as caught:
        load(user=accepting, tmp_path=tmp_path)
    assert "only the kernel-builder.toml of a project" in caught.value.diagnostics[0].message
