#!/bin/bash
# As older public tasks have it: a project of uv in the working folder.
pip3 install --quiet --break-system-packages uv
uv init --bare
uv add pytest==8.4.1
uv run pytest /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
