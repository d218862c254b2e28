# A program that the tests run leaves no room for the tests' own reward, and another one in a second file.
. /tmp/scripts/plant.inc
plant <<'EOF'
import os
try:
    os.makedirs("/logs/verifier/reward.txt/full", exist_ok=True)
    with open("/logs/verifier/reward.json", "w") as target:
        target.write('{"reward": 1}')
except OSError:
    pass
EOF
