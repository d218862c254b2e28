#!/bin/bash
# Builds /app/billing: a repository whose unmerged branch was deleted, with decoys. Dates and names are fixed.
set -eu
export HOME=/nonexistent GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
umask 022
git -c init.defaultBranch=main init -q --object-format=sha1 /app/billing
cd /app/billing
git config user.name "Ada Example"
git config user.email ada@example.org
git config gc.auto 0
tick=1700000000
commit() {
    tick=$((tick + 600))
    git add -A
    GIT_AUTHOR_DATE="$tick +0000" GIT_COMMITTER_DATE="$tick +0000" git commit -q "$@"
}

printf 'def total(cents):\n    return sum(cents)\n' > invoice.py
printf '# Billing\n' > README.md
commit -m "Start of billing"
printf '# Billing\n\nAmounts are in cents.\n' > README.md
commit -m "Say what the amounts are"
printf 'def rate(country):\n    return {"CH": 81, "DE": 190}.get(country, 0)\n' > tax.py
commit -m "Tax rates in tenths of a percent"

git checkout -q -b invoice-rounding
cat > check_invoice.py <<'PY'
import invoice

assert invoice.with_tax([1000], 81) == 1081
assert invoice.with_tax([15], 100) == 17, "half a cent is rounded up"
assert invoice.with_tax([5, 5], 100) == 11, "rounded once, on the total"
assert invoice.with_tax([], 190) == 0
print("ok")
PY
cat > invoice.py <<'PY'
def total(cents):
    return sum(cents)


def with_tax(cents, rate):
    return round(total(cents) * (1000 + rate) / 1000)
PY
commit -m "Totals with tax"
cat > invoice.py <<'PY'
def total(cents):
    return sum(cents)


def with_tax(cents, rate):
    return sum((cent * (1000 + rate) + 500) // 1000 for cent in cents)
PY
commit -m "Round half a cent up"
cat > invoice.py <<'PY'
def total(cents):
    return sum(cents)


def with_tax(cents, rate):
    """The total with tax, rounded once, half a cent up."""
    return (total(cents) * (1000 + rate) + 500) // 1000
PY
commit --amend --date "$((tick + 60)) +0000" -m "Round half a cent up"

git checkout -q main
printf 'def total(cents):\n    return sum(cents)  # TODO: tax?\n' > invoice.py
tick=$((tick + 600))
GIT_AUTHOR_DATE="$tick +0000" GIT_COMMITTER_DATE="$tick +0000" git stash push -q -m "half an idea"
git stash drop -q
git branch -q archive/2023 main~1
printf 'tax.py holds the rates.\n' >> README.md
commit -m "Where the rates are"

git branch -q -D invoice-rounding
git reflog expire --expire=now --expire-unreachable=now --all
rm -rf .git/logs .git/ORIG_HEAD .git/COMMIT_EDITMSG .git/hooks
