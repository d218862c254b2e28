#!/bin/bash
# The reward is 1 when every check passes, else 0. It is written last, after the checks have ended.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
reward=0
if timeout -k 5 90 python3 -I -B /tests/checks.py; then reward=1; fi
rm -rf /logs/verifier/reward.json /logs/verifier/reward.txt
echo "$reward" > /logs/verifier/reward.txt
