mkdir -p /workspace/consumer_group
cat > /workspace/consumer.py <<'EOF'
"""Consume the partitions that no other consumer holds: a lock is taken by the kernel, and ends with its holder."""

import fcntl
import json
import os
import time

GROUP, PARTITIONS = "/workspace/consumer_group", "/workspace/partitions"


def consume(number):
    with open(f"{PARTITIONS}/partition_{number}.txt") as source:
        return sum(1 for line in source if line.strip() and json.loads(line))


def main():
    left = {0, 1, 2}
    while left:
        for number in sorted(left):
            with open(f"{GROUP}/partition_{number}.lock", "w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                done = f"{GROUP}/partition_{number}.done"
                if not os.path.exists(done):
                    count = consume(number)
                    with open(done, "w") as target:
                        target.write(str(count))
                left.discard(number)
        time.sleep(0.01)


main()
EOF
cd /workspace
for consumer in 1 2 3; do python3 consumer.py & done
wait
total=0
for number in 0 1 2; do total=$((total + $(cat consumer_group/partition_$number.done))); done
printf 'consumed_count=%s\npartitions=0,1,2\n' "$total" > /workspace/results.txt
