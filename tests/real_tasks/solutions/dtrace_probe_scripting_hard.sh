cat > /tmp/analyze_traces.py <<'EOF'
"""Which of three services was the bottleneck, by their strace files."""

import json
import re

SERVICES = ("web_frontend", "cache_service", "db_connector")
BLOCKING = {"read", "write", "recv", "recvfrom", "recvmsg", "send", "sendto", "sendmsg", "poll", "select", "connect"}
BLOCKING |= {"accept", "accept4", "epoll_wait", "fsync", "fdatasync", "open", "openat", "pread64", "pwrite64", "ppoll"}
LINE = re.compile(r"^\S+\s+(\w+)\(.*\)\s*=\s*(-?\d+|\?|0x[0-9a-f]+).*<([\d.]+)>\s*$")


def measure(name):
    blocked = errors = total = count = 0
    with open(f"/tmp/traces/{name}.strace") as source:
        for line in source:
            found = LINE.match(line)
            if found is None:
                continue
            call, result, took = found[1], found[2], float(found[3])
            count, total = count + 1, total + took
            errors += result.startswith("-")
            blocked += took if call in BLOCKING else 0
    return blocked, errors, total / count if count else 0


def main():
    measured = {name: measure(name) for name in SERVICES}
    names = ("slowest_service", "most_errors", "highest_avg_latency")
    told = {key: max(SERVICES, key=lambda one: measured[one][index]) for index, key in enumerate(names)}
    with open("/tmp/incident_report.json", "w") as target:
        json.dump(told, target, indent=2)


main()
EOF
python3 /tmp/analyze_traces.py
