#!/bin/bash
# Runs when the agent has finished, with this folder at /tests. What it writes to reward.txt is the verdict: 1 or 0.
wanted=142
found=$(tr -d '[:space:]' < /app/sum.txt 2>/dev/null)
echo "wanted $wanted, found ${found:-nothing}"
if [ "$found" = "$wanted" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
