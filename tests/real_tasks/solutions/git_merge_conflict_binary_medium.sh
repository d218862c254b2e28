cd /workspace/repo
export GIT_AUTHOR_NAME=dev GIT_AUTHOR_EMAIL=dev@example.com GIT_COMMITTER_NAME=dev GIT_COMMITTER_EMAIL=dev@example.com
sed -n 's/^#\t//p' .git/MERGE_MSG | sort > /workspace/resolution.txt
python3 - <<'EOF'
import re
from pathlib import Path

for name in Path("/workspace/resolution.txt").read_text().split():
    side = 2 if name.startswith("assets/") else 1
    path = Path(name)
    text = path.read_text()
    path.write_text(re.sub(r"<<<<<<<[^\n]*\n(.*?)=======\n(.*?)>>>>>>>[^\n]*\n?", lambda m: m[side], text, flags=re.S))
EOF
# The repository has no objects and a broken index: what is left of it is its configuration.
rm -f .git/index .git/MERGE_HEAD
mv .git/MERGE_MSG /tmp/message
git init -q .
git add -A
git commit -q -F /tmp/message
git status --porcelain
