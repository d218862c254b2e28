"""Services of a task in sandboxes of their own: a private network, health, volumes, and their end."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sandbox.driving import Box, Driver, Raised
from support.pace import seconds

pytestmark = pytest.mark.any_user

SERVER = "python3 -m http.server 80 --directory /srv"
HEALTH = "python3 -c 'import urllib.request as u; u.urlopen(\"http://localhost/\")'"
GET = "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read().decode())'"
TWO = f"""
services:
  web:
    image: debian:12
    command: {SERVER}
    hostname: front
    networks: {{default: {{aliases: [shop.example]}}}}
    volumes: ["./pages:/srv"]
    healthcheck: {{test: {HEALTH}, interval: 1s, retries: 60}}
  echo:
    build: {{context: ./echo, args: {{WORD: given}}, target: last}}
    user: nobody
    depends_on: [web]
"""
ECHO = (
    "ARG WORD=none\nFROM debian:12 AS last\nARG WORD=own\nENV SAYS=$WORD\n"
    'CMD python3 -c \'import os, socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", 9));'
    ' [s.sendto(os.environ["SAYS"].encode() + b" " + m, w) for m, w in iter(lambda: s.recvfrom(99), 0)]\'\n'
    "FROM alpine AS never\n"
)
ASK = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.2)
for _ in range(300):
    s.sendto(b"hello", ("echo", 9))
    try:
        print(s.recv(99).decode())
        break
    except OSError:
        pass
"""


def compose(driver: Driver, text: str, files: dict[str, str] | None = None, **options) -> Box:
    own = {"Dockerfile": "FROM debian:12\nWORKDIR /app\n", "docker-compose.yaml": text, **(files or {})}
    return driver.box(files=own, **options)


@pytest.mark.both_users
def test_services_are_reached_by_name_and_nothing_else_is(driver: Driver) -> None:
    box = compose(driver, TWO, {"pages/page": "the page", "echo/Dockerfile": ECHO})
    for name in ("web", "front", "shop.example"):
        assert box.out(f"{GET} http://{name}/page") == "the page"
    assert box.python(ASK) == "given hello", "datagrams pass too"
    assert box.out("hostname") == "main"
    name, user = box.call("service_exec", "hostname; id -un", service="echo")["stdout"].split()
    assert name == "echo"
    assert user == "nobody" or driver.user == "ordinary", "with one id only, everybody is root"
    assert "http.server" not in box.out("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert box.run("python3 -c 'import socket; socket.create_connection((\"1.1.1.1\", 80), 5)'")["return_code"] != 0
    assert box.run(f"{GET} http://localhost/page")["return_code"] != 0, "each has its own ports"


def test_who_asks_for_names_by_itself_gets_an_answer_too(driver: Driver) -> None:
    """Programs that do not read /etc/hosts ask the relay."""
    box = compose(driver, TWO, {"echo/Dockerfile": ECHO, "pages/x": ""}, network="public")
    box.out("echo 127.0.0.1 localhost > /etc/hosts")
    assert box.out("getent hosts shop.example").split() == ["172.29.253.2", "shop.example"]


def test_the_tests_reach_the_services_that_the_agent_used(driver: Driver) -> None:
    box = compose(driver, TWO, {"pages/page": "the page", "echo/Dockerfile": ECHO})
    box.do("hand")
    assert box.out(f"{GET} http://web/page") == "the page"


def test_a_service_that_is_not_healthy_says_why(driver: Driver) -> None:
    check = "{test: [CMD, sh, -c, 'echo no page; exit 4'], interval: 200ms, retries: 2}"
    text = f"services:\n  web: {{image: debian:12, command: [sh, -c, echo starting; sleep 99], healthcheck: {check}}}\n"
    with pytest.raises(Raised, match=r"service web is not healthy after \d+ checks: exit code 4: no page") as caught:
        compose(driver, text)
    assert "last: starting" in caught.value.message
    assert "docker-compose.yaml:2" in caught.value.message


def test_a_service_that_ends_too_early_says_what_it_wrote(driver: Driver) -> None:
    text = "services:\n  job: {image: debian:12, command: [sh, -c, 'echo no such table >&2; exit 3']}\n"
    text += (
        "  web: {image: debian:12, command: sleep 99, depends_on: {job: {condition: service_completed_successfully}}}\n"
    )
    with pytest.raises(Raised, match="service job ended with exit code 3.*no such table"):
        compose(driver, text)


@pytest.mark.parametrize("command", ["/no/such/program", "sh -c 'sleep 0.3; exit 7'"])
def test_a_service_without_a_check_that_cannot_work_is_noticed(driver: Driver, command: str) -> None:
    with pytest.raises(Raised, match="the service api ended with exit code"):
        compose(driver, f'services:\n  api: {{image: debian:12, command: "{command}"}}\n')


def test_main_waits_for_what_it_needs_and_prepares_itself(driver: Driver) -> None:
    text = """
services:
  main:
    command: [sh, -c, "echo ready > /app/prepared && sleep infinity"]
    depends_on: {seed: {condition: service_completed_successfully}}
    volumes: ["s:/s", "./tool:/usr/local/bin/tool"]
  seed: {image: debian:12, command: sh -c 'sleep 1.5; echo seeded > /s/x', volumes: ["s:/s"]}
volumes: {s: }
"""
    box = compose(driver, text, {"tool": "#!/bin/sh\necho the tool\n"})
    assert box.out("cat /s/x") == "seeded"
    box.until("cat /app/prepared 2>&1", "ready")
    box.do("hand")
    assert box.out("sh /usr/local/bin/tool") == "the tool", "the tests have what the task puts into the system"
    with pytest.raises(Raised, match="the service seed ended with exit code 4"):
        compose(driver, text.replace("echo seeded > /s/x", "exit 4"), {"tool": ""})


def test_a_volume_that_is_full_is_the_writers_problem_alone(driver: Driver) -> None:
    fill = "sh -c 'head -c 80000000 /dev/zero > /v/x; echo $$? > /v/code; sleep 99'"
    check = "{test: test -s /v/y, interval: 1s, retries: 99}"
    text = f"""
services:
  a: {{image: debian:12, command: "{fill}", volumes: ["v:/v"], healthcheck: {check.replace("/v/y", "/v/x")}}}
  b: {{image: debian:12, command: sleep 99, volumes: ["v:/v"]}}
volumes: {{v: }}
"""
    box = compose(driver, text, config={"storage_mb": 50})
    size = "stat -c %s /v/x"
    assert int(box.call("service_exec", size, service="b")["stdout"]) <= 50 << 20
    assert box.out("echo alive") == "alive"


def test_what_a_service_left_is_ended_before_it_is_started_again(driver: Driver) -> None:
    text = """
services:
  web:
    image: debian:12
    restart: on-failure:3
    command: [sh, -c, "echo x >> /count; sleep 4321 & [ $$(wc -l < /count) = 2 ] && touch /up && wait; exit 5"]
    healthcheck: {test: test -e /up, interval: 1s, retries: 60}
"""
    box = compose(driver, text)
    count = "cat /proc/[0-9]*/comm | grep -c sleep"
    assert box.call("service_exec", count, service="web")["stdout"].strip() == "1"


def test_a_service_is_started_again_where_its_file_says_so(driver: Driver) -> None:
    command = "[sh, -c, 'echo x >> /count; [ $$(wc -l < /count) = 2 ] && touch /up && sleep 99; exit 1']"
    check = "{test: test -e /up, interval: 1s, retries: 60}"
    compose(
        driver,
        f"services:\n  web: {{image: debian:12, restart: on-failure, command: {command}, healthcheck: {check}}}\n",
    )


def test_a_service_may_be_one_program_on_nothing(driver: Driver, work: Path) -> None:
    """`FROM scratch`, as Go's services are built."""
    libraries = [word for word in subprocess.check_output(["ldd", "/bin/sleep"], text=True).split() if word[0] == "/"]
    copies = "".join(f"COPY --from=made {path} {path}\n" for path in ("/bin/sleep", *libraries))
    dockerfile = f'FROM debian:12 AS made\nFROM scratch\n{copies}COPY page /\nCMD ["/bin/sleep", "4321"]\n'
    box = compose(driver, "services: {tiny: {build: ./tiny}}\n", {"tiny/Dockerfile": dockerfile, "tiny/page": "small"})
    box.call("service_download_file", "/page", str(work / "page"), service="tiny")
    assert (work / "page").read_text() == "small"
    assert box.call("service_exec", "true", service="tiny")["return_code"] == 127, "there is no shell"


@pytest.mark.both_users
def test_volumes_are_shared_and_begin_with_what_the_image_has(driver: Driver) -> None:
    text = """
services:
  main: {volumes: ["data:/data:ro", "./in:/in"]}
  keep: {build: ./keep, command: sh -c 'echo more >> /data/first; touch /data/done; sleep 99', volumes: ["data:/data"],
         healthcheck: {test: test -e /data/done, interval: 1s, retries: 60}}
volumes: {data: {}}
"""
    files = {
        "keep/Dockerfile": "FROM debian:12\nRUN mkdir /data; echo first > /data/first; chmod 751 /data\n",
        "in/x": "1",
    }
    box = compose(driver, text, files)
    assert box.out("cat /data/first; stat -c %a /data; cat /in/x").split() == ["first", "more", "751", "1"]
    assert box.run("touch /data/mine")["return_code"] != 0
    box.out("echo 2 > /in/x")


def test_commands_and_files_of_a_service(driver: Driver, work: Path) -> None:
    """What Harbor does with services: hooks that collect, artifacts, the end of one."""
    box = compose(driver, "services:\n  db: {image: debian:12, command: sleep 99, environment: {A: b}}\n")
    done = box.call("service_exec", "mkdir /out; echo $A$C | tee /out/file", service="db", env={"C": "c"})
    assert done["stdout"] == "bc\n"
    box.call("service_download_file", "/out/file", str(work / "file"), service="db")
    box.call("service_download_dir", "/out", str(work / "out"), service="db")
    assert (work / "file").read_text() == (work / "out" / "file").read_text() == "bc\n"
    with pytest.raises(Raised, match="timed out after 1 seconds"):
        box.call("service_exec", "sleep 60", service="db", timeout_sec=1)
    box.call("stop_service", "db")
    with pytest.raises(Raised, match="service db is not running"):
        box.call("service_exec", "true", service="db")
    box.out("true")


def test_nothing_is_left_of_services_when_their_process_is_killed(own_driver: Driver) -> None:
    text = "services:\n  main: {volumes: ['v:/v']}\n  db: {image: debian:12, command: sleep 4321, volumes: ['v:/v']}\nvolumes: {v: }\n"
    compose(own_driver, text)
    assert list((own_driver.kept / "volumes").iterdir())
    os.kill(own_driver.process.pid, signal.SIGKILL)
    deadline = time.monotonic() + seconds(60)
    while list((own_driver.kept / "run").glob("*/")):
        assert time.monotonic() < deadline, "sandboxes outlive the process that held them"
        time.sleep(0.05)
    own_driver.restart()
    own_driver.box()
    assert not list((own_driver.kept / "volumes").iterdir())
