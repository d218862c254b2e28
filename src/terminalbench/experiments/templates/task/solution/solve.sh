#!/bin/bash
# How it can be solved: `tbench check` runs this, and the tests must pass.
awk '{ sum += $1 } END { print sum }' /app/numbers.txt > /app/sum.txt
