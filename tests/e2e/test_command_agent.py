"""An agent that is a command: any program, from nothing to a comparison."""

import json

BASH = """#!/bin/bash
echo "asked: $2"
[ "$(cat "$1")" = careful ] && echo forty-two > /app/answer.txt
echo '{"usage": {"in": 120, "out": 7}, "price": 0.25}'
"""
USAGE = 'usage = { input = "usage.in", output = "usage.out", cost = "price" }\n'


def test_a_shell_script_is_an_agent_and_two_of_its_prompts_are_compared(lab) -> None:
    """From nothing in four commands; where it prints its tokens is a line of the file."""
    script = lab.root / "agent.sh"
    script.write_text(BASH)
    script.chmod(0o755)
    for name in ("hasty", "careful"):
        (lab.root / f"{name}.txt").write_text(name)
        more = () if name == "hasty" else ("--slug", "hasty")
        made = lab.tbench("init", "--agent", name, *more, "--", "./agent.sh", f"{name}.txt", "{instruction}")
        assert made.returncode == 0, made.stderr
    file = lab.root / "experiments" / "hasty.toml"
    for name in ("hasty", "careful"):
        table = f"[profiles.{name}.command] # docs/your-agent.md\n"
        file.write_text(file.read_text().replace(table, table + USAGE))
    ran = lab.tbench("run", file, "--profiles", "hasty", "careful", "--tasks", "a", "b")
    assert ran.returncode == 0, ran.stderr
    batch = lab.root / "results" / "hasty" / "0"
    runs = json.loads((batch / "runs" / "index.json").read_text())["runs"]
    assert {(run["agent_key"], run["outcome"]) for run in runs} == {("hasty", "failed"), ("careful", "passed")}
    shown = json.loads(lab.tbench("show", batch, "careful", "a", "--json").stdout)["usage"]
    assert (shown["input_tokens"], shown["output_tokens"], shown["cost_usd"]) == (120, 7, 0.25)
    (trajectory,) = batch.glob("runs/*careful*/a__*/agent/trajectory.json")
    assert "asked: Write the answer" in json.loads(trajectory.read_text())["steps"][0]["message"]
    compared = lab.tbench("compare", batch)
    assert compared.returncode in (0, 3)
    assert "careful vs hasty" in compared.stdout, "its versions are compared with each other"


PYTHON = """
import json, sys
text = sys.stdin.read()
print(json.dumps({"role": "user", "content": text}))
call = {"id": "1", "function": {"name": "write", "arguments": "{}"}}
usage = {"prompt_tokens": 11, "completion_tokens": 5}
print(json.dumps({"role": "assistant", "content": "I write it", "tool_calls": [call], "usage": usage}))
if "--right" in sys.argv:
    open("/app/answer.txt", "w").write("forty-two")
"""
FAILS = "#!/bin/sh\necho 'no such model' >&2\nexit 3\n"


def test_programs_become_agents_by_one_command_and_are_compared(lab) -> None:
    """From nothing: an experiment of a program, a second version of it beside, a run, a comparison."""
    (lab.root / "cli.py").write_text(PYTHON)
    init = lab.tbench("init", "--agent", "wrong", "--", "python3", "cli.py")
    assert init.returncode == 0, init.stderr
    added = lab.tbench("init", "--agent", "right", "--slug", "wrong", "--", "python3", "cli.py", "--right")
    assert added.returncode == 0, added.stderr
    file = lab.root / "experiments" / "wrong.toml"
    ran = lab.tbench("run", file, "--profiles", "wrong", "right", "--tasks", "a", "b")
    assert ran.returncode == 0, ran.stderr
    batch = lab.root / "results" / "wrong" / "0"
    shown = {name: json.loads(lab.tbench("show", batch, name, "a", "--json").stdout) for name in ("wrong", "right")}
    assert "passed" in lab.tbench("show", batch, "right", "a").stdout
    assert "failed" in lab.tbench("show", batch, "wrong", "a").stdout
    assert shown["right"]["usage"]["input_tokens"] == 11
    (trajectory,) = batch.glob("runs/*right*/a__*/agent/trajectory.json")
    steps = json.loads(trajectory.read_text())["steps"]
    assert [step["source"] for step in steps] == ["user", "agent"]
    assert steps[1]["tool_calls"][0]["function_name"] == "write"
    assert lab.tbench("compare", batch).returncode in (0, 3)
    plan = lab.tbench("plan", file, "--json").stdout
    (lab.root / "cli.py").write_text(PYTHON + "# one byte\n")
    ids = [{job["profile"]: job["profile_id"] for job in json.loads(text)["jobs"]} for text in (
        plan, lab.tbench("plan", file, "--json").stdout)]  # fmt: skip
    assert ids[0]["right"] != ids[1]["right"]
    assert ids[0]["oracle"] == ids[1]["oracle"]


def test_a_program_without_a_file_and_one_that_fails(lab) -> None:
    (lab.root / "fails.sh").write_text(FAILS)
    (lab.root / "fails.sh").chmod(0o755)
    ran = lab.tbench("run", "--command", "./fails.sh {instruction}", "--tasks", "tasks/a", "--container-env", "local")
    assert "no such model" in ran.stdout + ran.stderr, ran.stdout + ran.stderr
    (trial,) = lab.root.glob("results/fails__*/0/runs/*/a__*")
    assert (trial / "agent" / "stderr.txt").read_text() == "no such model\n"


def test_what_is_wrong_with_a_command_is_said_by_validate(lab) -> None:
    (lab.root / "held").mkdir()
    (lab.root / "held" / ".env").write_text("KEY=x\n")
    for name in ("one", "two"):
        (lab.root / name).mkdir()
        (lab.root / name / "x.py").write_text("")
    profiles = """
[profiles.one]
agent = "command"
[profiles.two]
agent = "command"
[profiles.two.command]
run = ["x", "{instructions}"]
files = ["none.py", "held", "one/x.py", "two/x.py"]
usage = { tokens = "a" }
"""
    told = lab.tbench("validate", lab.experiment(profiles)).stderr
    assert "profiles.one.command: is missing" in told
    assert "no file or folder at" in told
    assert "which the agent would see" in told
    assert "/opt/agent/x.py would be both one/x.py and two/x.py" in told
    assert "must be one of input, output, cached, cost" in told
    assert "{instructions} is not a known placeholder (did you mean {instruction}?)" in told
    right = '[profiles.p]\nagent = "command"\n[profiles.p.command]\nrun = ["sh", "{files}/gone.sh", "jq {a}"]\n'
    assert "none of its files is at /opt/agent/gone.sh" in lab.tbench("validate", lab.experiment(right)).stderr
    for words in (("python3", "agnt.py"), ("nosuchprog", "{instruction}"), ("./nofile.sh",)):
        made = lab.tbench("init", "--agent", "typo", "--", *words)
        assert made.returncode == 2
        assert "there is no " in made.stderr
        assert not (lab.root / "experiments" / "typo.toml").exists()
    there = {"one": ("/opt/there/agent.py", "{instruction}"), "two": ("python3", "-m", "mine", "--write", "answer.py")}
    for name, words in there.items():
        assert lab.tbench("init", "--agent", name, "--", *words).returncode == 0, "places of the sandbox"


def test_what_ends_a_command_is_told_in_words(lab) -> None:
    table = '[profiles.{0}]\nagent = "command"\n[profiles.{0}.command]\nrun = {1}\n'
    profiles = {
        "slow": '["sleep", "600"]\ntimeout_sec = 1',
        "dies": """["sh", "-c", "kill -SEGV $$"]""",
        "mute": '["sh", "-c", "exit 3"]',
        "gone": '["no-such-program", "{instruction}"]',
    }
    file = lab.experiment("".join(table.format(*one) for one in profiles.items()), tasks=("a",))
    lab.tbench("run", file)
    told = {entry["agent_key"]: entry for entry in lab.index()}
    shown = {name: " ".join(lab.tbench("show", lab.batch().folder, name, "a").stdout.split()) for name in profiles}
    assert told["slow"]["outcome"] == "failed"
    assert "agent_timeout" in shown["slow"]
    assert "the command did not end within 1 s (timeout_sec)" in shown["slow"]
    assert "exit 139: killed by SIGSEGV" in shown["dies"]
    assert "exit 3: it printed nothing" in shown["mute"]
    assert told["gone"]["outcome"] == "errored"
    assert "no-such-program cannot be run in the sandbox: provide it with programs, files or install" in shown["gone"]


def test_a_task_is_added_to_an_experiment_that_exists(lab) -> None:
    file = lab.experiment('[profiles.oracle]\nagent = "oracle" # mine\n', tasks=("a",))
    ran = lab.tbench("init", "--task", "third", "--slug", "exp")
    assert ran.returncode == 0, ran.stderr
    assert "# mine" in file.read_text()
    assert "2 tasks" in lab.tbench("validate", file).stdout
    text = file.read_text().replace("items = [", 'items = "all" # [')
    before = file.read_text()
    wrong = lab.tbench("init", "--agent", "bad", "--slug", "exp", "--", "")
    assert wrong.returncode == 2
    assert file.read_text() == before, "what would not load is not left there"
    file.write_text("\n".join(line for line in text.splitlines()))
    assert lab.tbench("init", "--task", "fourth", "--slug", "exp").returncode == 0, "it has all that are there"
    assert (lab.root / "tasks" / "fourth").exists()
    file.write_text(file.read_text().replace('default_dataset = "tasks"', 'default_dataset = "starter"'))
    assert lab.tbench("init", "--task", "fifth", "--slug", "exp").returncode == 2
    assert not (lab.root / "tasks" / "fifth").exists()
    taken = lab.tbench("init", "--agent", "oracle", "--", "sh", "-c", "true")
    assert (taken.returncode, "oracle.toml" in taken.stderr) == (2, False)
