"""Backends: one object for each row of the table."""

from __future__ import annotations

import copy
import json
import pickle
import re
from dataclasses import asdict, dataclass
from importlib import resources

import pytest

from kernel_builder.binary.device_code import READERS
from kernel_builder.config.backends import HOST, SHOWN, Backend, Role, parse_backends
from kernel_builder.config.capabilities import is_architecture, parse_architecture
from kernel_builder.config.model import Capability


def test_all_of_them_in_order() -> None:
    assert [backend.value for backend in Backend] == ["cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu"]
    assert [backend.label for backend in Backend] == ["CANN", "CPU", "CUDA", "Metal", "Neuron", "ROCm", "TPU", "XPU"]
    assert (HOST, SHOWN) == ("cpu", "cuda")


@pytest.mark.parametrize("backend", tuple(Backend), ids=str)
def test_there_is_one_object_for_each(backend: Backend) -> None:
    assert Backend(backend.value) is backend
    assert Backend(backend) is backend
    assert pickle.loads(pickle.dumps(backend)) is backend  # noqa: S301  (our own)
    assert copy.copy(backend) is copy.deepcopy(backend) is backend


def test_it_is_its_name() -> None:
    backend = Backend("rocm")
    assert backend == "rocm"
    assert {"rocm": 1}[backend] == 1
    assert f"{backend}" == str(backend) == backend.value == "rocm"
    assert type(backend.value) is str
    assert json.dumps([backend]) == '["rocm"]'
    assert repr(backend) == "Backend('rocm')"
    assert sorted(Backend) == sorted(backend.value for backend in Backend)


def test_it_stays_one_in_a_dataclass() -> None:
    @dataclass
    class Holder:
        backend: Backend

    assert asdict(Holder(Backend("xpu")))["backend"] is Backend("xpu")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="'vulkan' is not a backend: cann, cpu"):
        Backend("vulkan")


def test_it_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="cannot be changed"):
        Backend("cpu").label = "Processor"


def test_what_the_rows_say_is_consistent() -> None:
    assert sum(backend.is_host for backend in Backend) == sum(backend.is_shown for backend in Backend) == 1
    words = [word for backend in Backend for word in (backend.value, *backend.words)]
    prefixes = [backend.prefix or backend.value for backend in Backend]
    keys = [key.name for backend in Backend for key in backend.keys]
    for names in (words, prefixes, keys):
        assert len(names) == len(set(names))
    for backend in Backend:
        assert backend.has_sections or not (backend.keys or backend.has_module or backend.scaffold)
        assert re.fullmatch(r"[a-z]+", backend.prefix or backend.value)
        if backend.symbols is not None:
            re.compile(backend.symbols)
        known = backend.architectures
        assert (known is not None) == (backend.key(Role.ARCHITECTURES) is not None)
        if known is not None:
            assert known.device_code in READERS
            assert all(str(parse_architecture(backend, example)) == example for example in known.examples)


def test_every_template_of_init_is_there() -> None:
    templates = resources.files("kernel_builder") / "templates" / "init"
    for backend in Backend:
        assert backend.scaffold is None or (templates / backend.scaffold.template).is_file()


def test_architectures_follow_the_grammar_of_their_backend() -> None:
    assert parse_architecture(Backend("cuda"), "8.0+PTX") == Capability(8, 0, ptx=True)
    assert parse_architecture(Backend("rocm"), "gfx942") == "gfx942"
    assert not is_architecture(Backend("cuda"), "gfx942")
    with pytest.raises(ValueError, match=r"'8\.0' is not a ROCm architecture; write something like \"gfx942\""):
        parse_architecture(Backend("rocm"), "8.0")
    with pytest.raises(ValueError, match="XPU has none"):
        parse_architecture(Backend("xpu"), "8.0")


ROW = """\
[[backend]]
name = "toy"
label = "Toy"
torch = { device = "toy", dispatch-key = "PrivateUse1" }
"""


def test_a_row_needs_little() -> None:
    (toy,) = parse_backends(ROW).values()
    assert (toy, toy.label, toy.prefix, toy.has_sections, toy.keys) == ("toy", "Toy", None, False, ())


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (ROW.replace('label = "Toy"', ""), "label"),
        (ROW + "colour = 1\n", "nobody reads: colour"),
        (ROW.replace("device =", "gadget ="), "gadget"),
        (ROW + '[[backend.kernel]]\nname = "toy-x"\nrole = "x"\nsummary = ""\n', "not a valid Role"),
    ],
)
def test_a_row_that_is_wrong_is_refused(row: str, problem: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError), match=problem):
        parse_backends(row)
