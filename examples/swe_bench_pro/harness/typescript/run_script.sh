#!/bin/bash
set -e
cd /app
IFS=',' read -r -a wanted <<< "${1:-}"
if [ ${#wanted[@]} -eq 0 ]; then wanted=(test/*.test.ts); fi
types=() ending=ts
if ! node -e 'process.exit(process.features.typescript ? 0 : 1)'; then
    if node --experimental-strip-types -e 0 2> /dev/null; then
        types=(--experimental-strip-types)
    else # a Node that knows no types: TypeScript's own compiler takes them out
        ending=js
        NODE_PATH=/usr/share/nodejs:/usr/local/lib/node_modules:/usr/lib/node_modules node - <<'JS'
const fs = require('node:fs'), path = require('node:path'), ts = require('typescript');
const options = { target: 'es2020', module: 'es2020' };
for (const folder of ['src', 'test']) {
  for (const name of fs.readdirSync(folder, { recursive: true })) {
    if (!name.endsWith('.ts')) continue;
    const made = path.join('/tmp/built', folder, name.replace(/ts$/, 'js'));
    const text = ts.transpile(fs.readFileSync(path.join(folder, name), 'utf8'), options);
    fs.mkdirSync(path.dirname(made), { recursive: true });
    fs.writeFileSync(made, text.replace(/(from\s+['"]\.[^'"]*)\.ts(['"])/g, '$1.js$2'));
  }
}
JS
        cp package.json /tmp/built/
        cd /tmp/built
    fi
fi
for file in "${wanted[@]}"; do
    echo "## file $file"
    timeout 60 node "${types[@]}" --test-reporter=tap "${file%ts}$ending" || true
done
