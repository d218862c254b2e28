"""An agent that is a command: any program, from nothing to a comparison."""

import json

BASH = """#!/bin/bash
echo "asked: $1"
[ "$(cat "$(dirname "$0")/prompt.txt")" = careful ] && echo forty-two > /app/answer.txt
echo '{"usage": {"in": 120, "out": 7}, "price": 0.25}'
"""
PROFILES = """
[profiles.{name}]
agent = "command"
[profiles.{name}.command]
run = ["{{files}}/{name}/agent.sh", "{{instruction}}"]
files = ["{name}"]
usage = {{ input = "usage.in", output = "usage.out", cost = "price" }}
"""


def test_a_shell_script_is_an_agent_and_two_of_its_prompts_are_compared(lab) -> None:
    for name, prompt in (("one", "hasty"), ("two", "careful")):
        (lab.root / name).mkdir()
        script = lab.root / name / "agent.sh"
        script.write_text(BASH)
        script.chmod(0o755)
        (lab.root / name / "prompt.txt").write_text(prompt)
    file = lab.experiment("".join(PROFILES.format(name=name) for name in ("one", "two")))
    ran = lab.tbench("run", file)
    assert ran.returncode == 0, ran.stderr
    assert lab.outcomes() == {(p, t): [o] for p, o in (("one", "failed"), ("two", "passed")) for t in ("a", "b")}
    shown = json.loads(lab.tbench("show", lab.batch().folder, "two", "a", "--json").stdout)
    assert (shown["usage"]["input_tokens"], shown["usage"]["output_tokens"], shown["usage"]["cost_usd"]) == (
        120,
        7,
        0.25,
    )
    (trajectory,) = lab.batch().folder.glob("runs/*two*/a__*/agent/trajectory.json")
    assert "asked: Write the answer" in json.loads(trajectory.read_text())["steps"][0]["message"]
