"""The language of a repository by its files, and where its tests are written."""

import json

import pytest

from terminalbench.workflow.languages import Language, Repository, Runner, go_package, is_test, named, of_repository

PY, GO, JS, TS = Language.PYTHON, Language.GO, Language.JAVASCRIPT, Language.TYPESCRIPT


@pytest.mark.parametrize(("label", "language"), [("js", JS), ("ts", TS), ("py", PY), ("golang", GO), ("Go", GO), ("TypeScript", TS), ("rust", None), ("", None), (None, None)])  # fmt: skip
def test_a_label_has_aliases(label: str | None, language: Language | None) -> None:
    assert named(label) is language


@pytest.mark.parametrize(
    ("files", "label", "language"),
    [
        (["src/a.ts", "src/b.tsx", "babel.config.js"], "js", TS),
        (["src/a.js", "types/a.d.ts", "types/b.d.ts"], "ts", JS),
        (["src/a.js", "src/b.ts"], "js", JS),
        (["src/a.js", "src/b.ts"], "ts", TS),
        (["main.go", "web/a.ts", "web/b.ts", "web/c.ts"], "go", GO),
        (["main.go", "web/a.ts", "web/b.ts", "web/c.ts"], None, TS),
        (["a.py", "node_modules/x/a.js", "node_modules/x/b.js"], None, PY),
        (["a.py"], "js", PY),
        (["README.md"], "js", JS),
        (["README.md"], None, None),
        ([], "go", GO),
    ],
)
def test_the_files_decide(files: list[str], label: str | None, language: Language | None) -> None:
    assert of_repository(files, label) is language


@pytest.mark.parametrize("path", ["tests/a.py", "pkg/test_a.py", "pkg/a_test.go", "src/a.test.ts", "src/a.spec.jsx", "test/unit/A-test.tsx", "__tests__/a.js", "conftest.py"])  # fmt: skip
def test_what_belongs_to_tests(path: str) -> None:
    assert is_test(path)


@pytest.mark.parametrize("path", ["src/a.py", "src/latest.py", "contest.js", "testing.go", "attest/a.ts"])
def test_what_does_not(path: str) -> None:
    assert not is_test(path)


def repo(language: Language | None, *files: str, **manifests: object) -> Repository:
    read = {
        name.replace("__", "/").replace("_json", ".json").replace("_toml", ".toml"): value
        for name, value in manifests.items()
    }
    data = {name: (value if isinstance(value, str) else json.dumps(value)).encode() for name, value in read.items()}
    return Repository(language, tuple(sorted((*files, *data))), data)


@pytest.mark.parametrize(
    ("repository", "runner"),
    [
        (repo(PY, "a.py"), Runner.UNITTEST),
        (repo(PY, "tests/conftest.py"), Runner.PYTEST),
        (repo(PY, "a.py", pyproject_toml="[tool.pytest.ini_options]\n"), Runner.PYTEST),
        (repo(GO, "a.go"), Runner.GO),
        (repo(JS, "a.js"), Runner.NODE),
        (repo(JS, "a.js", package_json={"scripts": {"test": "node --test test/"}}), Runner.NODE),
        (repo(JS, "a.js", package_json={"scripts": {"test": "mocha"}, "devDependencies": {"jest": "1"}}), Runner.MOCHA),
        (repo(TS, "a.ts", package_json={"scripts": {"test": "tsc && vitest run"}}), Runner.VITEST),
        (repo(TS, "a.ts", package_json={"scripts": {"test": "make"}, "devDependencies": {"jest": "29"}}), Runner.JEST),
        (repo(JS, "a.js", package_json="not json"), Runner.NODE),
        (repo(JS, "a.js", package_json=["a list"]), Runner.NODE),
        (repo(JS, "a.js", package_json="[" * 100_000), Runner.NODE),
        (repo(None, "a.rs"), None),
    ],
)
def test_the_runner_is_the_repositorys(repository: Repository, runner: Runner | None) -> None:
    assert repository.runner() is runner


def test_a_package_inside_of_another_has_its_own_runner() -> None:
    manifests = {"package_json": {"scripts": {"test": "jest"}}, "web__package_json": {"scripts": {"test": "vitest"}}}
    found = repo(TS, "web/src/a.ts", "src/b.ts", **manifests, lib__package_json={"name": "no tests"})
    assert (found.runner("web/src/x.test.ts"), found.package_of("web/src/x.test.ts")) == (Runner.VITEST, "web")
    assert (found.runner("lib/x.test.ts"), found.package_of("lib/x.test.ts")) == (Runner.JEST, "")


@pytest.mark.parametrize(
    ("repository", "code", "near", "place"),
    [
        (repo(PY, "a.py"), "", (), "test_guarded.py"),
        (repo(PY, "a.py", "tests/data.txt"), "", (), "tests/test_guarded.py"),
        (repo(PY, "test/units/cli/test_x.py", "test/units/net/test_y.py", "lib/net/y.py"), "", ("lib/net/y.py",), "test/units/net/test_guarded.py"),
        (repo(PY, "tests/test_guarded.py"), "", (), "tests/test_guarded_2.py"),
        (repo(GO, "main.go", "shop/cart.go", "web/cart.go"), "// a\npackage shop\n", (), "shop/guarded_test.go"),
        (repo(GO, "main.go", "shop/cart.go"), "package shop_test\n", (), "shop/guarded_test.go"),
        (repo(GO, "a/model/x.go", "b/model/x.go"), "package model\n", ("b/model/x.go",), "b/model/guarded_test.go"),
        (repo(GO, "a/x.go"), "no clause", (), None),
        (repo(JS, "src/a.js", "test/a.test.js"), "", (), "test/guarded.test.js"),
        (repo(TS, "src/a.ts", "src/a.spec.ts"), "", ("src/a.ts",), "src/guarded.spec.ts"),
        (repo(TS, "src/A.tsx", "test/unit/A-test.tsx", package_json={"scripts": {"test": "jest"}}), "render(<Cart />)", (), "test/unit/guarded-test.tsx"),
        (repo(JS, "src/a.js", "test/a.js", package_json={"scripts": {"test": "mocha"}}), "", (), "test/guarded.js"),
        (repo(JS, "a.mjs", "test/a.test.mjs"), "", (), "test/guarded.test.mjs"),
        (repo(JS, "a.js"), "", (), "guarded.test.js"),
        (repo(None, "a.rs"), "", (), None),
    ],
)  # fmt: skip
def test_a_test_goes_where_the_repository_expects_it(
    repository: Repository, code: str, near, place: str | None
) -> None:
    assert repository.place(code, near) == place
    if place is not None:
        assert repository.placed_badly(place, code) is None


def test_a_test_elsewhere_is_told_so() -> None:
    go = repo(GO, "shop/cart.go")
    assert "holds no Go package" in str(go.placed_badly("tests/x_test.go", "package shop"))
    assert "*_test.go" in str(go.placed_badly("shop/x.go", "package shop"))
    assert "package clause" in str(go.placed_badly("shop/x_test.go", ""))
    assert "typescript file" in str(repo(TS, "a.ts").placed_badly("test_x.py", ""))
    jest = repo(JS, "a.js", package_json={"scripts": {"test": "jest"}})
    assert "jest looks for" in str(jest.placed_badly("src/check.js", ""))


def test_the_package_of_go_code_is_read_past_comments() -> None:
    assert go_package("// package no\n/* package no\n*/\npackage yes // here\n") == "yes"
    assert go_package("func x() {}") is None
