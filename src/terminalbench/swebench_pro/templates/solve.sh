#!/bin/bash
# The golden patch, handed over as it is, and applied.
set -eu
cp /solution/golden.patch /logs/artifacts/prediction.patch
cd /app
git -c safe.directory='*' apply -v /solution/golden.patch
