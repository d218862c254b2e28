"""What a compose file says, and what of it is refused, with its line."""

from pathlib import Path

import pytest

from terminalbench.sandbox.builds.needs import image_sources
from terminalbench.sandbox.builds.recipe import nanoseconds
from terminalbench.sandbox.compose import MAIN
from terminalbench.sandbox.compose.project import read_project
from terminalbench.sandbox.errors import Refused

WHOLE = r"""
version: "3.9"
name: shop
x-common: &common
  restart: always
  environment: {A: one, B: two}
services:
  api:
    <<: *common
    image: "registry.example/api:${TAG:-1}"
    command: python -m api --name "two words"
    entrypoint: ["/bin/tini", "--"]
    environment:
      - B=own
      - PATTERN=^a\$$b$$
      - FROM_FILE=${FROM_DOTENV}
      - PASSED_ON
      - GIVEN
    env_file: [./api.env]
    working_dir: /srv
    user: "1000:1000"
    container_name: the-api
    depends_on:
      db: {condition: service_healthy}
      cache: {condition: service_started, required: false}
    mem_limit: 512m
    cpus: 1.5
    pids_limit: 100
    deploy: {resources: {limits: {memory: 1g}}}
    volumes:
      - ./conf:/etc/api:ro
      - data:/var/lib/api
      - /anonymous
      - type: bind
        source: ./conf/one
        target: /one
        read_only: true
    tmpfs: /run/api
    extra_hosts: ["old.example:10.1.2.3"]
    networks:
      default: {aliases: [api.internal]}
    healthcheck:
      test: ["CMD", "curl", "-f", "http://localhost"]
      interval: 1m30s
      timeout: 500ms
      retries: 5
      start_period: 10s
    ports: ["8080:80"]
    labels: {a: b}
  db:
    build: {context: db, dockerfile: Other, args: [V=1]}
    image: the/db
    healthcheck: {disable: true}
  copy:
    image: the/db
    profiles: []
  tools:
    image: never
    profiles: [debug]
volumes:
  data: {driver: local}
networks:
  default: {driver: bridge}
"""


def written(folder: Path, text: str) -> Path:
    for name in ("conf", "db"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "docker-compose.yaml").write_text(text)
    (folder / "Dockerfile").write_text("FROM debian:12\n")
    (folder / "db" / "Other").write_text("FROM debian:12\n")
    (folder / "api.env").write_text("# a comment\nexport C='three'\nB=file\nD=x # why\n")
    (folder / ".env").write_text("FROM_DOTENV=dot\nTAG=dot\n")
    return folder


def test_everything_of_a_service(tmp_path: Path) -> None:
    project = read_project(written(tmp_path, WHOLE), {"TAG": "7", "GIVEN": "g"})
    assert list(project.services)[-1] == "api"
    assert set(project.services) == {"api", "db", "copy", MAIN}
    api = project.services["api"]
    assert api.image == "registry.example/api:7"
    assert api.command == ("python", "-m", "api", "--name", "two words")
    assert api.entrypoint == ("/bin/tini", "--")
    assert api.env == {"B": "own", "C": "three", "D": "x", "PATTERN": "^a\\$b$", "FROM_FILE": "dot", "GIVEN": "g"}
    assert (api.workdir, api.user, api.restart) == ("/srv", "1000:1000", "always")
    assert api.names == {"api", "the-api", "api.internal"}
    assert api.extra_names == {"old.example": "10.1.2.3"}
    assert api.needs == {"db": "service_healthy"}
    assert (api.memory_mb, api.cpus, api.processes) == (512, 1.5, 100)
    found = [(mount.target, mount.path and mount.path.name, mount.volume, mount.read_only) for mount in api.mounts]
    assert found == [
        ("/etc/api", "conf", None, True),
        ("/var/lib/api", None, "data", False),
        ("/anonymous", None, None, False),
        ("/one", "one", None, True),
        ("/run/api", None, None, False),
    ]
    assert api.health is not None
    assert api.health.test == ("CMD", "curl", "-f", "http://localhost")
    assert (api.health.interval, api.health.timeout) == (90 * 10**9, 5 * 10**8)
    assert (api.health.retries, api.health.start_period) == (5, 10**10)
    assert project.shared_volumes() == set(), "a volume of one service needs no folder"


def test_what_the_images_are_made_of(tmp_path: Path) -> None:
    sources = image_sources(written(tmp_path, WHOLE), None, {})
    assert sources[MAIN].folder == tmp_path
    assert (sources["db"].folder, sources["db"].dockerfile) == (tmp_path / "db", "Other")
    assert sources["db"].arguments == {"V": "1"}
    assert sources["copy"] == sources["db"], "an image that another service builds"
    assert sources["api"].image == "registry.example/api:dot"
    assert image_sources(tmp_path, "prebuilt:1", {})[MAIN].image == "prebuilt:1"


def test_a_file_of_the_older_bench_gets_the_logs_that_it_asks_for(tmp_path: Path) -> None:
    text = """
services:
  main:
    build: {context: "${CONTEXT_DIR}"}
    command: [sh, -c, sleep infinity]
    volumes: ["${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}", "${HOST_AGENT_LOGS_PATH}:${ENV_AGENT_LOGS_PATH}"]
"""
    project = read_project(written(tmp_path, text), {})
    assert project.main.mounts == ()
    assert project.source(project.main).folder == tmp_path


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("services: [", 1, "no YAML"),
        ("- a\n", None, "a compose file without a table of services"),
        ("services:\n  a: {image: b}\nsecrets:\n  s: {file: x}\n", 3, '"secrets" of a compose file'),
        ("services:\n  a:\n    image: b\n    privileged: true\n", 4, "privileged"),
        ("services:\n  a:\n    image: b\n    cap_add: [SYS_ADMIN]\n", 4, "no rights beyond"),
        ("services:\n  a:\n    image: b\n    network_mode: host\n", 4, "network_mode: host"),
        ("services:\n  a:\n    image: b\n    volumes: ['/etc:/host']\n", 4, "not in the task's environment folder"),
        ("services:\n  a:\n    image: b\n    volumes: ['../x:/x']\n", 4, "not in the task's environment folder"),
        ("services:\n  a:\n    image: b\n    volumes: ['/var/run/docker.sock:/s']\n", 4, "not in the task's"),
        ("services:\n  a:\n    image: b\n    volumes: ['./conf:relative']\n", 4, "not an absolute path"),
        ("services:\n  a:\n    build: ./none\n", 3, "there is no"),
        ("services:\n  a:\n    build: {context: ., ssh: default}\n", 3, '"ssh" of build of the service a'),
        ("services:\n  a:\n    build: https://example.org/x.git\n", 3, "not in the task's"),
        ("services:\n  a:\n    platform: linux/s390x\n    image: b\n", 3, "linux/s390x"),
        ("services:\n  a:\n    image: b\n    deploy: {replicas: 2}\n", 4, "replicas"),
        ("services:\n  a:\n    image: b\n    mem_limit: much\n", 4, "not a size"),
        ("services:\n  a:\n    image: b\n    depends_on: [none]\n", 2, "depends on none"),
        (
            "services:\n  a: {image: b, depends_on: [c]}\n  c: {image: b, depends_on: [a]}\n",
            None,
            "wait for each other",
        ),
        ("services:\n  a: &x\n    build: *x\n", 2, "contains itself"),
        ("services:\n  a:\n    image: b\n    networks: [one]\nnetworks: {one: }\n", 2, "keep a and main apart"),
        ("services:\n  a:\n    image: b\n    networks: [one]\n", 2, "the network one of the service a is not declared"),
        ("services:\n  a:\n    image: b\n    healthcheck: {test: [curl, x]}\n", 4, "begins with curl"),
        ("services:\n  a:\n    image: b\n    extra_hosts: ['h:host-gateway']\n", 4, "on this machine"),
        ("services:\n  a: {command: x}\n", 2, "has no image"),
        (
            "services:\n  a:\n    image: b\n    comand: x\n",
            4,
            'the key "comand" of the service a is not supported.*did you mean "command"',
        ),
        (
            "servces:\n  a: {image: b}\n",
            1,
            'the key "servces" of a compose file is not supported.*did you mean "services"',
        ),
        (
            "services:\n  a:\n    image: b\n    healthcheck:\n      tst: x\n",
            5,
            'the key "tst" of healthcheck of the service a is not',
        ),
        ("services:\n  a:\n    image: b\n    healthcheck: {test: x, interval: soon}\n", 4, "soon is no time"),
        (
            "services:\n  a:\n    image: b\n    depends_on: {main: {conditon: x}}\n",
            4,
            '"conditon" of depends_on.*did you mean "condition"',
        ),
        ("services:\n  a:\n    image: b\n    deploy: {resource: {}}\n", 4, '"resource" of deploy'),
        ("services:\n  a:\n    image: b\n    image: c\n", 4, 'the key "image" appears twice'),
        ("services:\n  a:\n    build: [x]\n", 3, "build is not a table"),
        ("services:\n  a:\n    image: b\n    volumes: ['v:/v']\n", 2, "the volume v of the service a is not declared"),
        ("services:\n  a: {image: 'b:${NOPE:?say which}'}\n", 2, "variable NOPE is not set: say which"),
        ('services:\n  a: {image: b, hostname: "x\\ny"}\n', 2, "the name"),
        ("services:\n  a: {image: b}\n  ? [x, y]\n  : z\n", 3, "a key that is not a text"),
        (
            "services:\n  main:\n    volumes: ['v:/usr/local/bin']\n  a: {image: b, volumes: ['v:/v']}\nvolumes: {v: }\n",
            2,
            "main shares /usr/local/bin",
        ),
        ("services:\n  a: {image: b}\nvolumes:\n  v: {external: true}\n", 4, "external of the volume v"),
        ("services:\n  a: {image: b}\nnetworks:\n  n: {external: true}\n", 4, "the external network"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_line(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    with pytest.raises(Refused, match=said) as caught:
        image_sources(written(tmp_path, text), None, {})
    place = f"docker-compose.yaml:{line}" if line is not None else "docker-compose.yaml"
    assert place in str(caught.value)


def test_aliases_that_multiply_are_read_once(tmp_path: Path) -> None:
    lines = ["x-0: &a0 [x, x]", *(f"x-{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    project = read_project(written(tmp_path, "\n".join(lines) + "\nservices: {}\n"), {})
    assert set(project.services) == {MAIN}


@pytest.mark.parametrize(
    ("text", "value"),
    [("1m30s", 90 * 10**9), ("1.5s", 15 * 10**8), ("2h", 7200 * 10**9), ("", 0), ("ten", 0), ("5", 0)],
)
def test_times(text: str, value: int) -> None:
    assert nanoseconds(text) == value
