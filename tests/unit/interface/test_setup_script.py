"""``setup.py`` in the shapes that people write: followed, never run, and what cannot be told is named."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernel_builder.config.backends import Backend
from kernel_builder.errors import UsageError
from kernel_builder.interface.extension import ExtensionModule, read_setup
from kernel_trees import write

CPU, CUDA = Backend("cpu"), Backend("cuda")
FILES = {"csrc/a.cpp": "", "csrc/b.cpp": "", "csrc/k.cu": "", "csrc/deep/c.cpp": "", "csrc/test_a.cpp": ""}


def extensions(tmp_path: Path, text: str, more: dict[str, str] | None = None) -> tuple[ExtensionModule, ...]:
    write(tmp_path, {**FILES, "setup.py": text, **(more or {})})
    return read_setup(tmp_path).extensions


SOURCES = {
    "a loop": "s = []\nfor n in ['a', 'b']:\n    s.append(f'csrc/{n}.cpp')\nsetup(ext_modules=[CppExtension('e', s)])",
    "a loop with conditions": "s = []\nfor n in os.listdir('csrc'):\n    if not n.endswith('.cpp') or 'test' in n:\n"
    "        continue\n    s += [os.path.join('csrc', n)]\nsetup(ext_modules=[CppExtension('e', sources=s)])",
    "a comprehension": "CppExtension('e', [os.path.join('csrc', n + '.cpp') for n in ('a', 'b') if n != 'c'])",
    "glob": "from glob import glob\nCppExtension('e', [f for f in sorted(glob('csrc/*.cpp')) if 'test_' not in f])",
    "pathlib": "from pathlib import Path\nroot = Path(__file__).parent.resolve()\n"
    "CppExtension('e', [str(p) for p in (root / 'csrc').glob('[ab].cpp')])",
    "pathlib and map": "CppExtension('e', sources=list(map(str, Path('csrc').glob('[ab].cpp'))))",
    "itertools": "names = itertools.product(['a', 'b', 'x'], ('', 'x'))\n"
    "CppExtension('e', [f'csrc/{a}{b}.cpp' for a, b in names if 'x' not in a + b])",
    "itertools with repeat": "from itertools import product\n"
    "CppExtension('e', ['csrc/%s.cpp' % a for a, b in product('ab'.replace('ab', 'a b').split(), repeat=2) if a == b])",
    "sets": "CppExtension('e', sorted(set(glob.glob('csrc/*.cpp')) - set(glob.glob('csrc/test*'))))",
    "methods of sets": "s = set(glob.glob('csrc/[at]*.cpp'))\ns.add('csrc/b.cpp')\n"
    "CppExtension('e', list(s.difference(['csrc/test_a.cpp']).union(s.intersection(['csrc/b.cpp']))))",
    "another build of torch": "s = ['csrc/a.cpp', 'csrc/b.cpp']\n"
    "if torch.version.hip is not None:\n    s = ['csrc/c.hip']\nCppExtension('e', s)",
    "functions in functions": "def get():\n    def part(name):\n        return 'csrc/%s.cpp' % name\n"
    "    def ext(**kw):\n        return CppExtension(name='e', **kw)\n"
    "    return [ext(sources=[part('a'), part('b')])]\nsetup(ext_modules=get())",
    "one name in two functions": "def one():\n    sources = ['x.cpp']\n    return sources\n"
    "def two():\n    sources = ['csrc/a.cpp', 'csrc/b.cpp']\n    return CppExtension('e', sources)\n"
    "setup(ext_modules=[two()])",
    "keywords in a dictionary": "kw = dict(name='e')\nkw['sources'] = ['csrc/a.cpp']\n"
    "kw['sources'].append('csrc/b.cpp')\n"
    "CppExtension(**kw)",
    "a function of another file": "from tools.helpers import ext as made\nsetup(ext_modules=[made('e')])",
    "an alias": "from torch.utils.cpp_extension import CppExtension as Native\n"
    "setup(ext_modules=[Native('e', ['csrc/a.cpp', 'csrc/b.cpp'])])",
    "partial": "make = functools.partial(CppExtension, 'e')\nmake(sources=['csrc/a.cpp', 'csrc/b.cpp'])",
    "format": "CppExtension('e', ['{}/{}.cpp'.format('csrc', n) for n in 'a b'.split()])",
    "a class": "class Build:\n    def run(self):\n        return CppExtension('e', ['csrc/a.cpp', 'csrc/b.cpp'])\n",
    "a system": "s = ['csrc/a.cpp']\nif platform.system() == 'Windows':\n    s = ['w.cpp']\n"
    "elif sys.platform.startswith('linux'):\n    s += ['csrc/b.cpp']\nCppExtension('e', s)",
    "a variable that is not set": "s = ['csrc/a.cpp']\n"
    "if os.environ.get('WITH_X', '0') == '1':\n    s += ['csrc/x.cpp']\n"
    "if os.getenv('WITH_B', '1') == '1':\n    s += ['csrc/b.cpp']\nCppExtension('e', s)",
    "files that are there": "s = ['csrc/a.cpp', 'csrc/b.cpp', 'no.cpp']\n"
    "CppExtension('e', [f for f in s if os.path.exists(f)])",
}  # fmt: skip


@pytest.mark.parametrize("text", SOURCES.values(), ids=SOURCES)
def test_lists_of_sources_are_followed(tmp_path: Path, text: str) -> None:
    helpers = "def ext(name):\n    return CppExtension(name, ['csrc/a.cpp', 'csrc/b.cpp'])\n"
    (found,) = extensions(tmp_path, text, {"tools/helpers.py": helpers})
    assert found.name == "e"
    assert sorted(found.sources) == ["csrc/a.cpp", "csrc/b.cpp"]
    assert found.unknown == ()


def test_everything_below_a_directory_is_found(tmp_path: Path) -> None:
    (found,) = extensions(tmp_path, "CUDAExtension('e', glob.glob('csrc/**/*.c*', recursive=True))")
    assert found.sources == ("csrc/a.cpp", "csrc/b.cpp", "csrc/deep/c.cpp", "csrc/k.cu", "csrc/test_a.cpp")


def test_a_loop_makes_several_extensions(tmp_path: Path) -> None:
    text = "m = []\nfor n in ('a', 'b'):\n    m.append(CppExtension(f'pack.{n}', [f'csrc/{n}.cpp']))\n"
    text += (
        "if torch.cuda.is_available():\n    m.append(CUDAExtension('pack.k', ['csrc/k.cu']))\nsetup(ext_modules=m)\n"
    )
    found = extensions(tmp_path, text)
    assert [(one.name, one.sources, one.backends) for one in found] == [
        ("pack.a", ("csrc/a.cpp",), (CPU,)),
        ("pack.b", ("csrc/b.cpp",), (CPU,)),
        ("pack.k", ("csrc/k.cu",), (CUDA,)),
    ]


def test_kinds_that_conditions_choose_between_all_count(tmp_path: Path) -> None:
    text = "if a():\n    kind = CppExtension\nelif b():\n    kind = other.Extension\nelse:\n    kind = CUDAExtension\n"
    found = extensions(tmp_path, f"{text}kind('e', ['csrc/a.cpp'])\n")
    assert [(one.name, set(one.backends)) for one in found] == [("e", {CPU, CUDA})]


def test_an_extension_that_is_built_on_demand_is_found(tmp_path: Path) -> None:
    text = "m = [CppExtension('a', ['csrc/a.cpp'])]\nif os.getenv('WITH_K', '0') == '1':\n"
    text += "    f = ['-fa']\n    f += ['-fb']\n"
    text += "    m.append(CUDAExtension('k', ['csrc/k.cu'], extra_compile_args=f))\n"
    text += "if os.name == 'nt':\n    m.append(CppExtension('w', ['csrc/b.cpp']))\n"
    found = extensions(tmp_path, text)
    assert [(one.name, dict(one.flags)) for one in found] == [("a", {}), ("k", {"cxx": ("-fa", "-fb")})]


def test_directories_of_headers_that_are_there_are_taken(tmp_path: Path) -> None:
    text = "i = []\nif find():\n    i += ['csrc', 'no', '/usr/include']\n"
    text += "if find():\n    i.append(os.path.abspath('csrc/deep'))\n"
    (found,) = extensions(tmp_path, f"{text}CppExtension('e', ['csrc/a.cpp'], include_dirs=i)\n")
    assert found.include == ("csrc/deep",)
    assert found.conditional == ("['csrc', 'no', '/usr/include']",)


def test_flags_under_keys_and_conditions(tmp_path: Path) -> None:
    text = """
args = {"cxx": ["-O3", "-std=c++17", "-fopenmp"]}
extension, macros = CppExtension, []
if torch.cuda.is_available():
    extension = CUDAExtension
    macros += [("WITH_CUDA", None)]
    args["nvcc"] = ["-Xcompiler", "-fPIC", "-Xcompiler", "-fno-math", "--threads", "4", "--use_fast_math"]
    args["nvcc"] += ["-lineinfo"]
    if torch.version.cuda > "12":
        args["nvcc"].append("--new")
    if os.name == "nt":
        args["nvcc"] += ["/Zc:lambda"]
args["cxx"] += ["/Ox"] if os.name == "nt" else ["-ffast-math"]
setup(ext_modules=[extension("e", ["csrc/a.cpp"], extra_compile_args=args, define_macros=macros)])
"""
    (found,) = extensions(tmp_path, text)
    assert set(found.backends) == {CPU, CUDA}
    assert found.flags["cxx"] == ("-fopenmp", "-ffast-math")
    assert found.flags["nvcc"] == ("-Xcompiler", "-fno-math", "--use_fast_math", "-lineinfo")
    assert set(found.conditional) == {"[('WITH_CUDA', None)]", "['--new']", "['/Zc:lambda']"}


@pytest.mark.parametrize(
    ("text", "unknown", "conditional"),
    [
        ("CppExtension('e', find())", ("sources",), ()),
        ("CppExtension('e', [find()])", ("sources",), ()),
        ("CppExtension('e', ['csrc/a.cpp', find()])", (), ("find()",)),
        ("CppExtension('e', ['csrc/a.cpp'] + find())", (), ("find()",)),
        ("s = ['csrc/a.cpp']\nwhile more():\n    s.append(find())\nCppExtension('e', s)", (), ("[find()]",)),
        ("s = ['csrc/a.cpp']\nfor x in find():\n    s.append(x)\nCppExtension('e', s)", (), ("[x]",)),
        ("CppExtension('e' + find(), ['csrc/a.cpp'])", ("name",), ()),
        ("CppExtension('e', ['csrc/a.cpp'], extra_compile_args={'cxx': find()})", ("extra_compile_args['cxx']",), ()),
        ("CppExtension('e', ['csrc/a.cpp'], include_dirs=find())", ("include_dirs",), ()),
        ("m = [('A', None)]\nif find():\n    m += [('B', '1')]\nCppExtension('e', ['csrc/a.cpp'], define_macros=m)",
         (), ("[('B', '1')]",)),
        ("name = 'e'\nif find():\n    name = 'f'\nCppExtension(name, ['csrc/a.cpp'])", ("name",), ()),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_named(
    tmp_path: Path, text: str, unknown: tuple[str, ...], conditional: tuple[str, ...]
) -> None:
    (found,) = extensions(tmp_path, text)
    assert found.unknown == unknown
    assert found.conditional == conditional


def test_extensions_that_modules_load_are_found_without_a_setup_file(tmp_path: Path) -> None:
    loading = """
import os
from torch.utils.cpp_extension import load
PATH = os.path.dirname(os.path.abspath(__file__))
def build():
    return load(name="e", sources=[os.path.join(PATH, "k.cu"), "more.cpp"], extra_cflags=["-O3", "-fa"],
                extra_cuda_cflags=["-lineinfo"], extra_include_paths=[PATH], verbose=True)
"""
    others = {
        "pack/other.py": "import torch, torch.utils.cpp_extension\ntorch.load('a', 'b')\n",
        "bad.py": "cpp_extension load (",
    }
    write(tmp_path, {"pack/ext.py": loading, "pack/k.cu": "", "pack/more.cpp": "", **others})
    (found,) = read_setup(tmp_path).extensions
    assert (found.name, found.sources, found.backends) == ("e", ("pack/k.cu", "pack/more.cpp"), (CUDA,))
    assert dict(found.flags) == {"cxx": ("-fa",), "cuda": ("-lineinfo",)}
    assert found.include == ("pack",)


def test_extensions_of_pyproject_are_found(tmp_path: Path) -> None:
    text = """
[project]
name = "thing"
[[tool.setuptools.ext-modules]]
name = "thing.e"
sources = ["csrc/a.cpp"]
include-dirs = ["csrc"]
define-macros = [["A", "1"]]
extra-compile-args = ["-fa"]
"""
    write(tmp_path, {**FILES, "pyproject.toml": text})
    found = read_setup(tmp_path)
    (module,) = found.extensions
    assert (found.name, module.name, module.sources) == ("thing", "thing.e", ("csrc/a.cpp",))
    assert (module.include, module.defines, dict(module.flags)) == (("csrc",), ("-DA=1",), {"cxx": ("-fa",)})


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"CMakeLists.txt": "project(x)", "pyproject.toml": "[project]\nname = 'x'\n"}, "CMakeLists.txt"),
        ({"setup.py": "from torch.utils.cpp_extension import load_inline\nload_inline('e', cpp_sources=[''])\n"},
         "describes no"),
        ({"e.py": "from torch.utils.cpp_extension import load_inline\nload_inline('e', cpp_sources=[''])\n"}, "e.py:2"),
        ({"e.py": "import torch\ntorch.load('x', 'y')\n"}, "has no setup.py"),
    ],
)  # fmt: skip
def test_what_describes_no_extension_is_refused(tmp_path: Path, files: dict[str, str], said: str) -> None:
    write(tmp_path, files)
    with pytest.raises(UsageError, match=said) as raised:
        read_setup(tmp_path)
    assert raised.value.hint is not None


@pytest.mark.parametrize("top", ["setup(name='all')\n", None])
def test_an_extension_in_a_directory_below_is_named(tmp_path: Path, top: str | None) -> None:
    below = {"csrc/one/setup.py": "CUDAExtension('e', ['k.cu'])\n", "docs/setup.py": "setup()\n"}
    write(tmp_path, {**below, **({"setup.py": top} if top else {})})
    with pytest.raises(UsageError) as raised:
        read_setup(tmp_path)
    assert raised.value.hint == "pass a directory below it, whose setup.py does: csrc/one"


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return f(x)\nf(1)\n",
        "for a in range(10**9):\n    for b in range(10**9):\n        x = a\n",
        "s = ['a']\nfor i in range(900):\n    s = s + s\n",
        "s = 'aaaaaaaaaa'\nfor i in range(900):\n    s = s + s\n",
        "s = '%s'\nfor i in range(900):\n    s = s.replace('s', 'ssssssssss')\n",
        "s = []\ns.append(s)\ns.extend(s)\nd = {}\nd['d'] = d\n",
        "return 1\n",
        "break\n",
        "[x for x in range(1000) for y in range(1000) for z in range(1000)]\n",
    ],
)
def test_no_file_takes_long_or_ends_in_a_traceback(tmp_path: Path, text: str) -> None:
    before = time.process_time()
    (found,) = extensions(tmp_path, f"{text}CppExtension('e', ['csrc/a.cpp'])\n")
    assert found.sources == ("csrc/a.cpp",)
    assert time.process_time() - before < 5
