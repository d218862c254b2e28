#!/bin/bash
# pytest is installed when the tests run, and started as a module.
pip3 install --quiet --break-system-packages --upgrade pytest==8.4.2
python3 -m pytest /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
