#!/bin/bash
set -e
cd /app
IFS=',' read -r -a wanted <<< "${1:-}"
if [ ${#wanted[@]} -eq 0 ]; then wanted=(test/*.test.js); fi
for file in "${wanted[@]}"; do
    echo "## file $file"
    timeout 60 node --test-reporter=tap "$file" || true
done
