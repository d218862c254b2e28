"""Tasks with services: each in a sandbox of its own, in one private network, seen by agent and tests alike."""

from pathlib import Path

from support.tasks import BOTH, write_task

STORE = """
import http.server, os, pathlib, time

time.sleep(0.3)  # not ready at once: the health check waits
kept = pathlib.Path("/data/kept")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = kept.read_text() if kept.exists() else "nothing"
        self.answer(f"{os.environ['GREETING']} {text}")

    def do_POST(self):
        kept.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer("kept")

    def answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())


print("store is up", flush=True)
http.server.ThreadingHTTPServer(("", 80), Handler).serve_forever()
"""
GATE = """
import http.server, urllib.request


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with urllib.request.urlopen("http://store/", data=b"by the gate: " + body) as answer:
            text = answer.read()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.send_response(204)
        self.end_headers()


http.server.ThreadingHTTPServer(("", 80), Handler).serve_forever()
"""
GET = "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read().decode())'"
COMPOSE = f"""
services:
  main:
    depends_on:
      gate: {{condition: service_healthy}}
    environment:
      FROM_COMPOSE: "yes"
    volumes:
      - shared:/shared
  gate:
    image: debian:12
    command: ["python3", "/code/gate.py"]
    depends_on:
      store: {{condition: service_healthy}}
      once: {{condition: service_completed_successfully}}
    volumes:
      - ./gate:/code:ro
    healthcheck:
      test: {GET} http://localhost/
      interval: 1s
      retries: 20
    expose: ["80"]
    restart: unless-stopped
  once:
    image: debian:12
    command: sh -c 'echo "made by $${{WHO}}" > /shared/made'
    environment: [WHO=once]
    volumes:
      - shared:/shared
  store:
    build: ./store
    environment:
      GREETING: ${{WORD:-hello}}
    volumes:
      - ./seed:/data
    ports: ["8080:80"]
volumes:
  shared:
"""
SOLVE = """#!/bin/bash
set -e
python3 -c 'import urllib.request as u; u.urlopen("http://gate/", data=b"the work").read()'
cat /shared/made > made
echo "$FROM_COMPOSE" >> made
"""


def compose_task(folder: Path) -> Path:
    write_task(folder, solve=SOLVE)
    environment = folder / "environment"
    (environment / "docker-compose.yaml").write_text(COMPOSE)
    for name in ("gate", "store", "seed"):
        (environment / name).mkdir()
    (environment / "gate" / "gate.py").write_text(GATE)
    (environment / "seed" / "kept").write_text("the seed")
    (environment / "store" / "server.py").write_text(STORE)
    health = f"HEALTHCHECK --interval=1s --retries=20 CMD {GET} http://localhost/"
    (environment / "store" / "Dockerfile").write_text(
        f'FROM debian:12\nCOPY server.py /srv/\n{health}\nCMD ["python3", "/srv/server.py"]\n'
    )
    (folder / "tests" / "test.sh").write_text(
        f'#!/bin/bash\nsaid=$({GET} http://store/)\necho "$said"\ncat made\n'
        '[ "$said" = "hello by the gate: the work" ] && [ "$(cat made)" = "made by once\nyes" ]\n'
        "echo $((1 - $?)) > /logs/verifier/reward.txt\n"
    )
    return folder


def test_services_find_each_other_and_start_when_those_they_need_are_healthy(lab) -> None:
    folder = compose_task(lab.root / "tasks" / "shop")
    file = lab.experiment(BOTH, tasks=("shop",))
    ran = lab.tbench("run", file)
    assert ran.returncode == 0, ran.stderr
    assert lab.outcomes() == {("oracle", "shop"): ["passed"], ("nop", "shop"): ["failed"]}
    (log,) = lab.batch().folder.glob("*/*oracle*/*/services/store.log")
    assert log.read_text().startswith("store is up\n")
    assert "172.29.253." in log.read_text(), "services see who asks"
    assert (folder / "environment" / "seed" / "kept").read_text() == "the seed", "a task's own files are copied"


def test_what_cannot_be_done_of_a_compose_file_is_said_before_a_run(lab) -> None:
    folder = compose_task(lab.root / "tasks" / "shop")
    compose = folder / "environment" / "docker-compose.yaml"
    compose.write_text(COMPOSE.replace("    restart: unless", "    pid: host\n    restart: unless"))
    file = lab.experiment(BOTH, tasks=("shop", "a"))
    for command in ("validate", "plan"):
        told = " ".join(lab.tbench(command, file).stdout.split())
        assert 'docker-compose.yaml:23: the key "pid" of the service gate is not supported' in told, told
    ran = lab.tbench("run", file)
    assert ran.returncode == 3, ran.stderr
    outcomes = {"a": {"oracle": "passed", "nop": "failed"}, "shop": {"oracle": "not_run", "nop": "not_run"}}
    assert lab.outcomes() == {(p, task): [o] for task, found in outcomes.items() for p, o in found.items()}
