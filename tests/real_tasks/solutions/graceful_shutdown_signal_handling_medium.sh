python3 - <<'EOF'
from pathlib import Path

path = Path("/workspace/worker/daemon.py")
text = path.read_text()
text = text.replace("import sys\n", "import signal\nimport sys\n", 1)
text = text.replace('''def main():
''', '''stopping = False


def request_stop(number, frame):
    """Let the current task finish; no other is started."""
    global stopping
    stopping = True


def main():
''', 1)
text = text.replace('''    print("Daemon starting...", flush=True)
''', '''    signal.signal(signal.SIGTERM, request_stop)
    signal.signal(signal.SIGINT, request_stop)
    print("Daemon starting...", flush=True)
''', 1)
text = text.replace('''    for task_id in tasks:
''', '''    for task_id in tasks:
        if stopping:
            print("Stopping after a signal.", flush=True)
            sys.exit(0)
''', 1)
path.write_text(text)
EOF
echo /workspace/worker/daemon.py > /workspace/solution.txt
