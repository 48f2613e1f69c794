"""Which backend a name gives."""

import sys
from types import ModuleType

import pytest

from edgellm.backends import get_backend
from edgellm.errors import ArgumentError, BackendError


def native(reason: str | None) -> ModuleType:
    """Return a stand-in for the native module that says why it cannot be used."""
    module = ModuleType("edgellm.backends.native")
    backend = type("NativeBackend", (), {"name": "native"})
    module.__dict__.update(available=lambda: reason, NativeBackend=backend)
    return module


def test_the_reference_is_always_there() -> None:
    assert get_backend("reference").name == "reference"


@pytest.mark.parametrize("name", ["jit", "", "Native", "cuda"])
def test_unknown_names_are_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ArgumentError, match="auto, native, numba, reference"):
        get_backend(name)


def test_auto_takes_native_where_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "edgellm.backends.native", native(None))
    assert get_backend("auto").name == "native"
    assert get_backend().name == "native"
    assert get_backend("native").name == "native"


def test_auto_falls_back_and_native_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "edgellm.backends.native", native("no C core was built"))
    assert get_backend("auto").name == "numba"
    with pytest.raises(BackendError, match="no C core was built"):
        get_backend("native")


def test_a_native_module_that_cannot_be_imported_is_no_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "edgellm.backends.native", None)  # what a failed import leaves behind
    assert get_backend("auto").name == "numba"
    with pytest.raises(BackendError, match="cannot be used"):
        get_backend("native")


def test_without_numba_the_reference_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "edgellm.backends.native", native("no C core was built"))
    monkeypatch.setitem(sys.modules, "numba", None)
    assert get_backend("auto").name == "reference"
    with pytest.raises(BackendError, match="the numba backend cannot be used: numba cannot be imported"):
        get_backend("numba")
    with pytest.raises(BackendError, match="no C core was built"):
        get_backend("native")
