import pytest

from terminalbench import registry
from terminalbench.errors import UserError


def test_an_import_path_is_resolved() -> None:
    assert registry.resolve("agents", "terminalbench.errors:UserError") is UserError


@pytest.mark.parametrize("spec", ["json", "a.b", "a:", ":b", "a b:c", "../x:y"])
def test_other_shapes_are_no_import_path(spec: str) -> None:
    assert not registry.is_import_path(spec)


def test_an_unknown_name_suggests_the_closest() -> None:
    with pytest.raises(UserError, match='no environment is called "locol".*did you mean "local"'):
        registry.resolve("environments", "locol")


def test_a_module_that_cannot_be_loaded_is_a_user_error() -> None:
    with pytest.raises(UserError, match="cannot load agent"):
        registry.resolve("agents", "no_such_module_here:Agent")
    with pytest.raises(UserError, match="cannot load agent"):
        registry.resolve("agents", "json:NoSuchName")


def test_an_installed_entry_point_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entry_points", lambda kind: {"mine": "json:loads"} if kind == "analyzers" else {})
    import json

    assert registry.resolve("analyzers", "mine") is json.loads
    assert registry.names("analyzers") == sorted([*registry.BUILTIN["analyzers"], "mine"])
