"""run_experiment.sh and demo.py: what they hand on, from which settings; nothing of a value is ever executed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPO

SCRIPT = REPO / "examples" / "swe_bench_pro" / "run_experiment.sh"
STUB = """#!{python}
import json, os, sys
from pathlib import Path
here = Path(__file__).parents[2]
with (here / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps([sys.argv[1:], os.environ.get("LLM_API_KEY")]) + "\\n")
if "experiment" in sys.argv:
    folder = here / sys.argv[sys.argv.index("--output-dir") + 1]
    (folder / "batches").mkdir(parents=True, exist_ok=True)
    (folder / "results.jsonl").touch()
    raise SystemExit(int(os.environ.get("STUB_CODE", "0")))
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout with a Python that notes what it is called with."""
    root = tmp_path / "a clone"
    (root / "examples" / "swe_bench_pro").mkdir(parents=True)
    shutil.copy(SCRIPT, root / "examples" / "swe_bench_pro")
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STUB.format(python=sys.executable))
    python.chmod(0o755)
    return root


def run(root: Path, settings: str | None, *extra: str, **env: str) -> subprocess.CompletedProcess[str]:
    script = root / "examples" / "swe_bench_pro" / "run_experiment.sh"
    if settings is not None:
        (script.parent / ".env").write_text(settings)
    names = ("PATH", "HOME", "LANG")
    clean = {name: os.environ[name] for name in names if name in os.environ}
    return subprocess.run(
        [str(script), *extra], env=clean | env, capture_output=True, text=True, timeout=600, check=False
    )


def calls(root: Path) -> list[tuple[list[str], str | None]]:
    return [tuple(json.loads(line)) for line in (root / "calls.jsonl").read_text().splitlines()]


def option(words: list[str], name: str) -> str | None:
    return words[words.index(name) + 1] if name in words else None


def test_settings_become_options_and_no_value_is_executed(clone: Path) -> None:
    settings = (
        "PROVIDER=ollama   # a comment\n"
        "MODEL=my model; touch pwned\n"
        "OUTPUT_DIR=out put/$(touch pwned)\n"
        'ARMS="s1_tdd,singleshot"\n'
        "LLM_API_KEY=sk-secret\n"
        "MAX_INSTANCES=0\nMAX_WORKERS=3\nLANGUAGE=\nINSTANCES='a,b'\nEVALUATE=false\nBASE_URL=   # none\n"
    )
    ran = run(clone, settings, "--retry-errors")
    assert ran.returncode == 0, ran.stderr
    (words, key), (analysis, _) = calls(clone)
    assert words[:3] == ["-m", "examples.swe_bench_pro.demo", "experiment"]
    assert option(words, "--model") == "my model; touch pwned"
    assert option(words, "--output-dir") == "out put/$(touch pwned)"
    assert option(words, "--log-file") == "out put/$(touch pwned)/experiment.log"
    assert (option(words, "--arms"), option(words, "--instances")) == ("s1_tdd,singleshot", "a,b")
    assert (option(words, "--max-workers"), words[-1]) == ("3", "--retry-errors")
    absent = ("--language", "--max-instances", "--base-url", "--evaluate", "--resume", "--tasks", "--api-key")
    assert not [name for name in absent if name in words]
    assert key == "sk-secret"
    assert "sk-secret" not in " ".join([*words, *analysis, ran.stdout, ran.stderr])
    assert not list(clone.rglob("pwned"))
    assert analysis[2:4] == ["analyze-errors", "--results"]
    for name in ("results.jsonl", "traces/", "artifact_dags/", "final_error_analysis_latest.md"):
        assert name in ran.stdout


def test_it_resumes_by_itself_and_keeps_the_exit_code(clone: Path) -> None:
    settings = "PROVIDER=ollama\nOUTPUT_DIR=out\nEVALUATE=true\nWATCH=true\nMAX_COST=5\n"
    assert run(clone, settings, STUB_CODE="3").returncode == 3
    assert run(clone, None, MODEL="from the environment", STUB_CODE="2").returncode == 2
    (first, _), (analysis, _), (second, _) = calls(clone)
    assert "--resume" not in first
    assert first[-4:] == ["--watch", "--evaluate", "--eval-max-workers", "4"]
    assert "analyze-errors" in analysis
    assert "--resume" in second
    assert option(second, "--model") == "from the environment"


def test_without_settings_it_says_how_to_make_them(clone: Path) -> None:
    ran = run(clone, None)
    assert ran.returncode == 1
    assert ".env.example" in ran.stderr
    assert not (clone / "calls.jsonl").exists()
    assert run(clone, "MODEL=x\n").returncode != 0


def test_every_setting_of_the_example_is_read_by_the_script() -> None:
    lines = (SCRIPT.parent / ".env.example").read_text().splitlines()
    names = [line.partition("=")[0] for line in lines if line and not line.startswith("#")]
    assert len(names) == 17
    assert not [name for name in names if f"{name}" not in SCRIPT.read_text()]


def test_a_key_in_the_arguments_of_the_demo_is_refused() -> None:
    argv = [sys.executable, "-m", "examples.swe_bench_pro.demo", "experiment", "--api-key", "sk-x"]
    ran = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 2
    assert "export LLM_API_KEY" in ran.stderr
    assert "sk-x" not in ran.stderr
