#!/bin/bash
# entry.sh PATCH OUTPUT: the steps of the official evaluator, in its order, and as there without set -e: a patch that does
# not apply has its tests run all the same. The tests come from a patch, since the commit of the fix is not in git.
patch=$1 output=$2
@ENV@
git config --global --add safe.directory '*'
cd /app
git reset --hard @BASE@
git checkout @BASE@
git apply -v "$patch"
echo $? > "$output/apply.code"
for name in @TESTS@; do
    rm -rf "$name"
    ! git cat-file -e @BASE@:"$name" 2> /dev/null || git checkout -q @BASE@ -- "$name"
done
git apply /tests/test.patch || { echo "the patch of the tests does not apply"; exit 1; }
bash /workspace/run_script.sh @SELECTED@ > "$output/stdout.log" 2> "$output/stderr.log"
$(command -v python || command -v python3) /workspace/parser.py "$output/stdout.log" "$output/stderr.log" "$output/output.json"
