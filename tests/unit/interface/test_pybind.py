"""Schemas of functions that ``PYBIND11_MODULE`` offers: what follows from C++, and what a person must decide."""

from __future__ import annotations

import pytest

from kernel_builder.interface.native import read_native
from kernel_builder.interface.pybind import bound_functions, module_blocks

MODULE = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {} }}"


def converted(functions: str, definitions: str) -> tuple[list[str], list[str]]:
    files = {"a.cpp": read_native(f"{functions}\n{MODULE.format(definitions)}\n")}
    found, decisions = bound_functions(files, module_blocks(files))
    return [function.schema for function in found], list(decisions)


@pytest.mark.parametrize(
    ("cxx", "schema"),
    [
        ("at::Tensor f(const torch::Tensor& x)", "f(Tensor x) -> Tensor"),
        ('static_assert(true, ""); Tensor f(Tensor x, Tensor const &y)', "f(Tensor x, Tensor y) -> Tensor"),
        ("void f(torch::Tensor &out, at::Tensor x)", "f(Tensor! out, Tensor x) -> ()"),
        ("at::Tensor f(at::Tensor x, const int n, long m, size_t k)", "f(Tensor x, int n, int m, int k) -> Tensor"),
        ("double f(float a, double b, bool c)", "f(float a, float b, bool c) -> float"),
        ("std::vector<at::Tensor> f(std::vector<torch::Tensor> xs)", "f(Tensor[] xs) -> Tensor[]"),
        ("at::Tensor f(c10::optional<at::Tensor> x, at::IntArrayRef s)", "f(Tensor? x, int[] s) -> Tensor"),
        ("std::tuple<at::Tensor, torch::Tensor>\nf(at::TensorList xs)", "f(Tensor[] xs) -> (Tensor, Tensor)"),
        ("inline std::string f(const std::string& s)", "f(str s) -> str"),
        ("at::Tensor f(at::Tensor x, at::ScalarType t)", "f(Tensor x, ScalarType t) -> Tensor"),
        ("at::Tensor f(at::Tensor)", "f(Tensor arg0) -> Tensor"),
        ("int64_t f()", "f() -> int"),
        ("std::tuple<int, float, at::Tensor> f(at::Tensor x)", "f(Tensor x) -> (int, float, Tensor)"),
        ("void f(at::Tensor x, std::optional<at::Tensor> &out)", "f(Tensor x, Tensor!? out) -> ()"),
        ("MY_API torch::Tensor f(at::Tensor x)", "f(Tensor x) -> Tensor"),
        ("at::Tensor f(const std::tuple<int, int> s, std::pair<float,double> k)", "f(int[2] s, float[2] k) -> Tensor"),
        ("at::Tensor f(std::tuple<int, at::Tensor> x = {}, int n)", None),
        ("at::Tensor f(std::vector<int> a, std::vector<bool> b, std::vector<std::string> c, std::vector<float> d)",
         "f(int[] a, bool[] b, str[] c, float[] d) -> Tensor"),
        ("at::Tensor f(std::optional<int> n, c10::optional<double> x)", "f(int? n, float? x) -> Tensor"),
        ("uintptr_t f(uintptr_t handle, const char* name)", "f(int handle, str name) -> int"),
        ("at::Tensor f(std::vector<std::vector<int>> x)", None),
        ("std::vector<int> f(at::Tensor x)", None),
        ("at::Tensor f(at::Tensor in, bool is, float default_)", "f(Tensor in_, bool is_, float default_) -> Tensor"),
    ],
)  # fmt: skip
def test_types(cxx: str, schema: str | None) -> None:
    schemas, decisions = converted(f"{cxx} {{ return {{}}; }}", 'm.def("f", &f);')
    assert schemas == ([] if schema is None else [schema])
    assert bool(decisions) is (schema is None)


@pytest.mark.parametrize(
    "cast",
    [
        "py::overload_cast<const torch::Tensor&, int>(&f)",
        "py::overload_cast<Tensor, int>(f)",
        "static_cast<at::Tensor (*)(const at::Tensor &, int)>(&f)",
        "(at::Tensor (*)(at::Tensor const &, int)) &f",
        "(at::Tensor (*)(at::Tensor const &, int))f",
    ],
)
def test_a_cast_chooses_one_of_several_functions(cast: str) -> None:
    cxx = (
        "at::Tensor f(const at::Tensor &x, float a) { return x; }\n"
        "at::Tensor f(const at::Tensor &x, const int n) { return x; }\n"
        "at::Tensor f(const at::Tensor &x, std::vector<std::pair<int, int>> s, int n) { return x; }"
    )
    schemas, decisions = converted(cxx, f'm.def("f", {cast}, "f of (a, b) < c", py::arg("x"), py::arg("k") = 2);')
    assert (schemas, decisions) == (["f(Tensor x, int k=2) -> Tensor"], [])


def test_a_cast_to_what_no_function_takes_is_told() -> None:
    cast = "py::overload_cast<at::Tensor, std::pair<int, int>>(&f)"
    schemas, decisions = converted("at::Tensor f(at::Tensor x, int n) { return x; }", f'm.def("f", {cast});')
    assert schemas == []
    (decision,) = decisions
    assert "no declaration of f(at::Tensor, std::pair<int, int>) was found" in decision


@pytest.mark.parametrize(
    ("argument", "default"),
    [
        ('py::arg("n") = 3', "=3"),
        ('pybind11::arg("n")=-1', "=-1"),
        ('"n"_a = 0', "=0"),
        ('py::arg("n") = kDefault', ""),
        ('py::arg("n")', ""),
        ('py::arg("n").noconvert() = 2', "=2"),
    ],
)
def test_defaults(argument: str, default: str) -> None:
    schemas, decisions = converted("int f(int k) { return k; }", f'm.def("f", &f, "takes (a, b)", {argument});')
    assert schemas == [f"f(int n{default}) -> int"]
    assert len(decisions) == ("kDefault" in argument)


def test_defaults_that_a_schema_cannot_have_are_left_out_and_told() -> None:
    # torch refuses a schema with a default before a parameter without one when the library is loaded.
    schemas, decisions = converted(
        "int f(int a, int b, int c) { return a; }",
        'm.def("f", &f, py::arg("a") = 1, py::arg("b") = kB, py::arg("c") = 3);',
    )
    assert schemas == ["f(int a, int b, int c=3) -> int"]
    assert any("f(b=kB) is not a literal" in decision for decision in decisions)
    assert any("f(a=1) is left out, because b" in decision for decision in decisions)


def test_names_that_are_words_of_schemas_or_of_cxx_get_another_one() -> None:
    schemas, decisions = converted(
        "at::Tensor f(at::Tensor x, int n, int in) { return x; }",
        'm.def("f", &f, py::arg("as"), py::arg("default") = 1, py::arg("in") = 2);',
    )
    assert schemas == ["f(Tensor as_, int default_=1, int in_=2) -> Tensor"]
    assert [decision.partition(",")[0].rpartition(" ")[2] for decision in decisions] == ["as", "default", "in"]


def test_functions_are_called_where_they_are_defined() -> None:
    text = "namespace a { namespace b::c { int f(int n) { return n; } }\nint g(int n) { return n; }\n"
    text += MODULE.format('m.def("f", &b::c::f); m.def("g", torch::wrap_pybind_function(g));') + "}"
    files = {"a.cpp": read_native(text)}
    found, decisions = bound_functions(files, module_blocks(files))
    assert [(one.name, one.namespace) for one in found] == [("f", "a::b::c"), ("g", "a")]
    assert decisions == ()


def test_what_two_modules_define_is_told() -> None:
    text = "int f(int a);\n" + MODULE.format('m.def("f", &f);')
    files = {f"{name}.cpp": read_native(text) for name in "ab"}
    found, decisions = bound_functions(files, module_blocks(files))
    assert len(found) == 1
    assert "b.cpp:2: f is defined a second time" in decisions[0]


def test_what_is_written_in_place_is_marked_and_told() -> None:
    schemas, decisions = converted("void f(at::Tensor x, at::Tensor y) { x.add_(y); }", 'm.def("f", &f);')
    assert schemas == ["f(Tensor! x, Tensor y) -> ()"]
    assert decisions == ["a.cpp:2: f seems to write to x: it is marked with !"]
    for result in ("void", "int"):
        _, decisions = converted(f"{result} f(at::Tensor x) {{ g(x.data_ptr<float>()); }}", 'm.def("f", &f);')
        assert "returns no tensor" in decisions[0]


@pytest.mark.parametrize(
    ("functions", "definition", "said"),
    [
        ("void f(at::Tensor x, void *p) {}", 'm.def("f", &f);', "void *"),
        ("at::Tensor f(py::object x) { }", 'm.def("f", &f);', "py::object"),
        ("static int f() { return 1; }", 'm.def("f", &f);', "static"),
        ("", 'm.def("f", &f);', "no declaration of f"),
        ("", 'm.def("f", [](int a) { return a; });', "not a plain function"),
        ("", 'm.attr("x") = 1;', "m.attr"),
        ("namespace { int f(int a) { return a; } }", 'm.def("f", &f);', "namespace without a name"),
        ("struct A { static int f(int a) { return a; } };", 'm.def("f", &A::f);', "function of the class A"),
        ("template <class T> int f(T a) { return a; }", 'm.def("f", &f<int>);', "not a plain function"),
        ("", 'py::class_<A>(m, "A").def("f", &A::f);', "class_"),
    ],
)
def test_what_has_no_counterpart_is_told(functions: str, definition: str, said: str) -> None:
    schemas, decisions = converted(functions, definition)
    assert schemas == []
    assert any(said in decision for decision in decisions)


@pytest.mark.parametrize(
    ("function", "definition", "schema"),
    [
        ("int f() noexcept { return 1; }", "[] { return f(); }", "h() -> int"),
        ("int f(int a, int b) { return a; }", "[](int a, int b) -> int { return f(a, b); }", "h(int a, int b) -> int"),
        ("int f(at::Tensor a);", "[](at::Tensor x) { return ::f(std::move(x)); }", "h(Tensor a) -> int"),
        ("int f(int a, int b) { return a; }", "[](int a, int b) { return f(b, a); }", None),
        ("int f(int a) { return a; }", "[](int a) { return f(a) + 1; }", None),
        ("int f(int a) { return a; }", "[](int a) { g(); return f(a); }", None),
        ("int f(int a) { return a; }", "[](int a) { return f(a * 2); }", None),
        ("int f(int a) { return a; }", "[] { return f(1); }", None),
    ],
)
def test_a_lambda_that_only_passes_on_is_the_function(function: str, definition: str, schema: str | None) -> None:
    schemas, decisions = converted(function, f'm.def("h", {definition});')
    assert schemas == ([] if schema is None else [schema])
    assert any("not a plain function" in decision for decision in decisions) is (schema is None)


def test_definitions_count_only_where_a_compiler_sees_them() -> None:
    schemas, _ = converted(
        '// void f(int);\n#if 0\nint f(long a);\n#endif\nconst char *s = "int f(bool)"; int f(double a) { return 1; }',
        '/* m.def("g", &g); */ m.def("f", &f).def("h", f);',
    )
    assert schemas == ["f(float a) -> int", "h(float a) -> int"]


def test_functions_that_add_to_the_module_count_as_it_does() -> None:
    files = {
        "a.cpp": read_native(MODULE.format("bind(m);")),
        "b.cpp": read_native('int f(int a) { return a; }\nvoid bind(py::module_ &mod) {\n  mod.def("f", &f);\n}\n'),
    }
    found, decisions = bound_functions(files, module_blocks(files))
    assert [function.schema for function in found] == ["f(int a) -> int"]
    assert decisions == ()


def test_functions_of_modules_in_the_module_become_ops_and_that_is_told() -> None:
    schemas, decisions = converted(
        "int f(int a) { return a; }\nint g(int a) { return a; }",
        'm.def("f", &f); auto sub = m.def_submodule("sub", "more"); sub.def("g", &g);',
    )
    assert schemas == ["f(int a) -> int", "g(int a) -> int"]
    assert decisions == ["a.cpp: sub: functions of a module in the module became ops beside the others"]


def test_operators_of_a_registry_are_worked_out_as_those_of_a_module() -> None:
    text = """
    namespace a { at::Tensor f(at::Tensor x, int64_t n) { return F::apply(x, n)[0]; } }
    at::Tensor g(at::Tensor x) { return x; }
    #ifdef WITH_PYTHON
    #endif
    static auto registry = torch::RegisterOperators()
        .op("space::f", &a::f)
        .op("space::g(Tensor x) -> Tensor", &g)
        .op("space::h", [] { return 1; });
    int after;
    """
    files = {"a.cpp": read_native(text)}
    (block,) = module_blocks(files)
    shown = files["a.cpp"].code[block.start : block.end]
    assert shown.startswith("static auto registry")
    assert shown.endswith("return 1; });")
    (f, g), decisions = bound_functions(files, (block,))
    assert (f.schema, f.namespace, f.has_gradient) == ("f(Tensor x, int n) -> Tensor", "a", True)
    assert (g.schema, g.namespace, g.has_gradient) == ("g(Tensor x) -> Tensor", "", False)
    assert [decision.partition(" ")[2] for decision in decisions] == [
        "h is not a plain function: write one, and register it"
    ]


@pytest.mark.parametrize("entry", ["PyMODINIT_FUNC PyInit__C(void)", "PyObject* PyInit__C()"])
def test_an_empty_module_goes_with_what_is_around_it(entry: str) -> None:
    for head, tail in (('extern "C" {\n', "}\n"), ("", "")):
        text = f"int a;\n{head}{entry} {{ if (x) {{ }} return NULL; }}\n{tail}namespace n {{}}\n"
        files = {"a.cpp": read_native(text)}
        (block,) = module_blocks(files)
        assert block.is_empty
        code = files["a.cpp"].code
        assert (code[: block.start] + code[block.end :]).split() == ["int", "a;", "namespace", "n", "{}"]
        assert bound_functions(files, (block,)) == ((), ())
