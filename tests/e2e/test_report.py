"""From a real run to what people read and other programs take."""

import json
import re
from urllib.parse import unquote
from xml.etree import ElementTree

SIMULATED = """
[profiles.weak]
agent = "simulated"
model = "simulated/weak"
options = { solve_probability = 0.0, steps_mean = 2 }
[profiles.strong]
agent = "simulated"
model = "simulated/strong"
options = { solve_probability = 1.0, steps_mean = 2 }
"""


def test_a_run_becomes_a_report(lab) -> None:
    file = lab.experiment(SIMULATED, run="parallel = 2")
    assert lab.tbench("run", file).returncode == 0
    assert lab.tbench("analyze", file, "--quiet").returncode == 0
    told = lab.tbench("report", file)
    assert told.returncode == 0, told.stderr
    folder = lab.batch().analytics
    page = (folder / "report.html").read_text()
    assert "strong vs weak: +100.0 pt" in page
    assert "Simulated agents took part" in page
    assert "Tool calls by kind" in page
    links = [unquote(href) for href in re.findall(r'href="(\.\./[^"]+)"', page)]
    assert len(set(links)) == 4
    assert all((folder / link / "result.json").is_file() for link in links)

    name = links[0].rsplit("/", 1)[1]
    shown = lab.tbench("show", name).stdout
    assert shown.index("instruction") < shown.index("#1 user") < shown.index("#2 agent")
    counted = lab.tbench("query", "SELECT outcome, count(*) AS n FROM trials GROUP BY 1 ORDER BY 1", "--json")
    assert json.loads(counted.stdout) == [{"outcome": "failed", "n": 2}, {"outcome": "passed", "n": 2}]
    known = lab.tbench("query", "SELECT DISTINCT name FROM findings WHERE name = 'backtracks'")
    assert known.stdout.split() == ["name", "backtracks"]
    suites = ElementTree.fromstring(lab.tbench("export", file, "--format", "junit").stdout)
    assert {suite.get("name"): suite.get("failures") for suite in suites} == {"weak": "2", "strong": "0"}
