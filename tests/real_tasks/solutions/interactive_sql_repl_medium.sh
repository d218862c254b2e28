cat > /tmp/sql_repl.py <<'EOF'
"""An interactive shell for SQLite that remembers the queries which succeeded."""

import sqlite3
import sys
from datetime import datetime, timezone
from pathlib import Path

HISTORY = Path("/tmp/sql_repl_history.txt")


def show(count=None):
    lines = HISTORY.read_text().splitlines()[::-1] if HISTORY.exists() else []
    for line in lines[:count]:
        print(line)


def execute(connection, query):
    try:
        for row in connection.execute(query):
            print(*row, sep=" | ")
        connection.commit()
    except sqlite3.Error as error:
        print(f"error: {error}")
        return
    with HISTORY.open("a") as target:
        target.write(f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ} {' '.join(query.split())}\n")


def main():
    connection = sqlite3.connect(sys.argv[1] if len(sys.argv) > 1 else "/tmp/test.db")
    for line in sys.stdin:
        words = line.split()
        if not words:
            continue
        if words[0] in (".exit", ".quit"):
            break
        if words[0] == ".history":
            show(int(words[1]) if len(words) > 1 and words[1].isdigit() else None)
        elif words[0] == ".clear":
            HISTORY.write_text("")
        elif words[0].startswith("."):
            print(f"unknown command {words[0]}")
        else:
            execute(connection, line.strip())
    connection.close()


main()
EOF
printf '%s\n' 'CREATE TABLE IF NOT EXISTS notes (id INTEGER, text TEXT);' "INSERT INTO notes VALUES (1, 'one');" \
  "INSERT INTO notes VALUES (2, 'two');" 'SELECT count(*) FROM notes;' 'SELECT * FROM notes;' .exit | python3 /tmp/sql_repl.py /tmp/own.db
count=$(wc -l < /tmp/sql_repl_history.txt)
printf '{"database_path": "/tmp/own.db", "history_storage": "/tmp/sql_repl_history.txt", "test_query_count": %s}\n' "$count" > /tmp/repl_test_results.json
