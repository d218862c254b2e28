# A program that the tests run never ends, and neither do its children: no verdict, so that the trial is run again.
. /tmp/scripts/plant.inc
plant <<'EOF'
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    try:
        signal.signal(number, signal.SIG_IGN)
    except ValueError:
        pass
os.fork()
time.sleep(100000)
EOF
