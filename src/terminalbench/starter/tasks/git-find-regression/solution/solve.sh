#!/bin/bash
set -eu
git clone -q --no-hardlinks /app/slugs /app/bisecting
cd /app/bisecting
cat > /app/is-good <<'SH'
#!/bin/bash
[ "$(python3 -B slug.py 'Crème  Brûlée, 2nd try')" = creme-brulee-2nd-try ]
SH
chmod 755 /app/is-good
git bisect start main v1.0
git bisect run /app/is-good > /dev/null
git rev-parse refs/bisect/bad > /app/culprit.txt
rm -rf /app/bisecting /app/is-good
cat /app/culprit.txt
