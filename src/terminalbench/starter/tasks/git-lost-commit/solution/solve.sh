#!/bin/bash
set -eu
cd /app/billing
for commit in $(git fsck --no-reflogs --lost-found 2> /dev/null | awk '$2 == "commit" { print $3 }'); do
    folder=$(mktemp -d)
    git archive "$commit" | tar -x -C "$folder"
    if [ -f "$folder/check_invoice.py" ] && (cd "$folder" && python3 -B check_invoice.py); then
        git branch invoice-rounding "$commit"
    fi
    rm -rf "$folder"
done
git log --oneline invoice-rounding
