#!/bin/bash
set -e
cd /app
IFS=',' read -r -a wanted <<< "${1:-}"
if [ ${#wanted[@]} -eq 0 ]; then wanted=(test/*.test.ts); fi
types=()
if ! node -e 'process.exit(process.features.typescript ? 0 : 1)'; then types=(--experimental-strip-types); fi
for file in "${wanted[@]}"; do
    echo "## file $file"
    timeout 60 node "${types[@]}" --test-reporter=tap "$file" || true
done
