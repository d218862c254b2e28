# A program that the tests run, or import, writes the reward.
. /tmp/scripts/plant.inc
plant <<'EOF'
import os
for name, text in (("reward.txt", "1\n"), ("reward.json", '{"reward": 1}')):
    try:
        with open("/logs/verifier/" + name, "w") as target:
            target.write(text)
        os.chmod("/logs/verifier/" + name, 0o444)
    except OSError:
        pass
try:
    os.chmod("/logs/verifier", 0o555)
except OSError:
    pass
EOF
