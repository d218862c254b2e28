#!/bin/bash
# The verdict on the patch that an agent left, in a fresh copy of the environment. The reward is written last, and not at
# all when the tests could not be judged: that is an error of the evaluation, and no verdict.
set -u
python=$(command -v python || command -v python3) || { echo "eval_error: there is no python to judge with"; exit 9; }
rm -rf /workspace && mkdir -p /workspace /workspace/control /logs/verifier
cp /tests/run_script.sh /tests/parser.py /workspace/
if [ -n "${TBENCH_CONTROL_PATCH:-}" ]; then
    # The tests hung on the agent's patch. Do they end on a right one? No verdict is written.
    git -C /app clean -fdq
    cp "$TBENCH_CONTROL_PATCH" /workspace/patch.diff
    bash /tests/entry.sh /workspace/patch.diff /workspace
    exec "$python" /tests/score.py usable /workspace/output.json
fi
[ -e /logs/artifacts/model.patch ] || [ -e /logs/artifacts/model.error ] || { echo "eval_error: no patch was collected"; exit 9; }
"$python" /tests/score.py strip /logs/artifacts/model.patch /workspace/patch.diff || exit 9
bash /tests/entry.sh /workspace/patch.diff /workspace
if ! "$python" /tests/score.py usable /workspace/output.json && [ -s /workspace/patch.diff ]; then
    # Did the patch break all tests, or was nothing to be had anyway? The same without the patch tells.
    echo "no test was reported: the same without the patch"
    git -C /app clean -fdq
    : > /workspace/control/patch.diff
    bash /tests/entry.sh /workspace/control/patch.diff /workspace/control
fi
cp /workspace/*.log /workspace/output.json /logs/verifier/ 2> /dev/null
rm -rf /logs/verifier/reward.json /logs/verifier/reward.txt
"$python" /tests/score.py verdict /workspace /tests/tests.json /logs/verifier
