"""The public API is these names, and its page does what it says."""

import io
import pkgutil
import re
import subprocess
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import terminalbench
from conftest import REPO
from support.warm import Warm
from terminalbench.errors import UserError
from terminalbench.experiments.batch import allocate

PAGE = REPO / "docs" / "python.md"


def test_the_public_names_are_exactly_these() -> None:
    functions = ["analyze", "compare", "load", "open_results", "plan", "resume", "run"]
    assert terminalbench.__all__ == ["__version__", *functions]
    assert dir(terminalbench) == terminalbench.__all__
    for name in functions:
        assert callable(getattr(terminalbench, name))
        assert getattr(terminalbench, name).__doc__
    public = {name for name in vars(terminalbench) if not name.startswith("_")}
    modules = {name for name in public if f"terminalbench.{name}" in sys.modules}
    assert public - modules == {"TYPE_CHECKING"}
    with pytest.raises(AttributeError, match="no attribute 'runs'"):
        _ = terminalbench.runs  # ty: ignore[missing-attribute]


def test_what_takes_the_place_of_a_name_of_the_older_runner_can_be_imported() -> None:
    table = PAGE.read_text().partition("| before | now |")[2]
    names = re.findall(r"`(terminalbench\.[\w.]+)`", " ".join(row.split(" | ")[-1] for row in table.splitlines()))
    assert len(names) >= 8
    for name in names:
        assert callable(pkgutil.resolve_name(name)), name


def test_the_api_is_imported_when_it_is_asked_for() -> None:
    code = "import sys, terminalbench; terminalbench.load; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"harbor", "numpy", "click", "terminalbench.lab"}.isdisjoint(ran.stdout.split())


@pytest.mark.timeout(600)
def test_every_block_of_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("terminalbench.runner.executors.local.spawn", Warm())
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert sum(kind == "text" for kind, _ in blocks) >= 6
    names: dict = {}
    printed = ""
    for kind, text in blocks:
        if kind == "text":
            assert printed == text
            continue
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(text, str(PAGE), "exec"), names)
        printed = out.getvalue()


def test_the_functions_print_nothing(project, capsys: pytest.CaptureFixture[str]) -> None:
    from support.experiments import BASE, ORACLE

    terminalbench.plan(project.experiment(BASE + ORACLE))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("labels", [{"a": 1}, {"a b": "x"}, {1: "x"}])
def test_a_label_that_no_plan_could_hold_is_refused_before_a_batch_is_taken(project, labels: dict) -> None:
    from support.experiments import BASE, ORACLE

    with pytest.raises(UserError, match="label .*the name must be of"):
        terminalbench.run(project.experiment(BASE + ORACLE), labels=labels)
    assert not (project.root / "results").exists()


def test_one_name_is_no_list_of_names_and_a_metric_has_a_name(project) -> None:
    from support.experiments import BASE, ORACLE

    file = project.experiment(BASE + ORACLE)
    for work in (terminalbench.plan, terminalbench.run):
        with pytest.raises(UserError, match=r"profiles=\.\.\.\): must be a list of names"):
            work(file, profiles="oracle")
    with pytest.raises(UserError, match='no metric "pas"'):
        terminalbench.compare(file, metric="pas")  # ty: ignore[invalid-argument-type]


def test_a_batch_cannot_run_outside_the_main_thread(project) -> None:
    from support.experiments import BASE, ORACLE

    file = project.experiment(BASE + ORACLE)
    caught: list[str] = []

    def start() -> None:
        try:
            terminalbench.run(file)
        except UserError as error:
            caught.append(error.what)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert caught
    assert "main thread" in caught[0]
    assert not (project.root / "results").exists()


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("run", {"labels": ["a=1"]}, "a table of texts"),
        ("run", {"tasks": [1]}, "a list of names"),
        ("run", {"listener": 5}, "a function of one event"),
        ("run", {"gate": 5}, "a path"),
        ("plan", {"profiles": 5}, "a list of names"),
        ("plan", {"batch": "0"}, "the number of a batch"),
        ("compare", {"metric": None}, "a text"),
        ("compare", {"results": "a\0b"}, "a path"),
        ("resume", {"attempts": "x"}, "a whole number"),
        ("resume", {"attempts": True}, "a whole number"),
        ("resume", {"retry_errors": 5}, "a text"),
        ("compare", {"contrasts": ["ab"]}, "a list of pairs"),
        ("compare", {"k": "x"}, "a whole number"),
        ("analyze", {"compare": "ab"}, "a pair of names"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_named(project, name: str, given: dict, wanted: str) -> None:
    from support.experiments import BASE, ORACLE

    with pytest.raises(UserError) as raised:
        getattr(terminalbench, name)(project.experiment(BASE + ORACLE), **given)
    [(argument, value)] = given.items()
    assert raised.value.where == f"{name}({argument}=...)"
    assert raised.value.what.startswith(f"must be {wanted}")
    assert raised.value.what.endswith(f", not {value!r}")
    assert not (project.root / "results").exists()


@pytest.mark.parametrize("name", ["load", "plan", "run", "resume", "compare", "analyze", "open_results"])
def test_what_is_no_name_at_all_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="5"):
        getattr(terminalbench, name)(5)


@pytest.mark.parametrize("name", ["load", "plan", "run", "resume", "compare", "analyze", "open_results"])
@pytest.mark.parametrize("given", ["x" * 300, "x" * 300 + ".toml", "s/" + "x" * 300])
def test_a_name_that_no_file_can_have_is_an_error_like_any_other(project, name: str, given: str) -> None:
    with pytest.raises(UserError):
        getattr(terminalbench, name)(given)


def test_paths_may_be_texts(project) -> None:
    from support.results import make_plan, make_trial

    batch = allocate(project.root / "results", "s")
    make_plan(batch, ("p", "q"), "a")
    for profile in "pq":
        make_trial(batch, f"a__{profile}", profile=profile)
    root, results = str(project.root), str(project.root / "results")
    assert terminalbench.compare("s/0", results=results, root=root).baseline == "p"
    assert terminalbench.analyze("s/0", root=root).report is not None
