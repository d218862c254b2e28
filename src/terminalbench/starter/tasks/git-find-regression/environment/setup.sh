#!/bin/bash
# Builds /app/slugs: some forty commits, one of which breaks slug.py. Dates and names are fixed.
set -eu
export HOME=/nonexistent GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
umask 022
git -c init.defaultBranch=main init -q --object-format=sha1 /app/slugs
cd /app/slugs
git config user.name "Ada Example"
git config user.email ada@example.org
tick=1720000000
commit() {
    tick=$((tick + 3600))
    git add -A
    GIT_AUTHOR_DATE="$tick +0000" GIT_COMMITTER_DATE="$tick +0000" git commit -q -m "$1"
}
notes() {
    for number in $(seq "$1" "$2"); do
        echo "- note $number: nothing to see" >> NOTES.md
        commit "Note $number"
    done
}

cat > slug.py <<'PY'
"""slug.py TITLE: prints the title as a slug."""

import re
import sys
import unicodedata


def slug(title):
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


print(slug(sys.argv[1]))
PY
echo "# Notes" > NOTES.md
commit "Slugs"
git tag v1.0
notes 1 9
sed -i 's/    plain = /    ascii_only = /; s/plain.lower/ascii_only.lower/' slug.py
commit "Rename a variable"
notes 10 14
sed -i 's/^import re$/import re as regex/; s/re\.sub/regex.sub/' slug.py
commit "Rewrite the handling of separators"
notes 15 17
sed -i 's/NFKD/NFC/' slug.py
commit "Tidy up"
notes 18 26
sed -i 's/\[^a-z0-9\]+/[^a-z0-9_]+/' slug.py
commit "Keep underscores"
notes 27 33
sed -i 's/ascii_only = \(.*\)$/ascii_only = \1  # drops what is not ASCII/' slug.py
commit "Fix accented letters"
notes 34 38
rm -rf .git/hooks
