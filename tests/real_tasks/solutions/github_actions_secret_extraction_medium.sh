python3 - <<'EOF'
import base64
import json
import re

with open("/workspace/workflow_log.txt") as source:
    text = source.read()
secrets, parts = [], {}
for name, number, value in re.findall(r"(\w+)_PART(\d+)=(\S+)", text):
    parts.setdefault(name, {})[int(number)] = value
secrets += ["".join(value for _, value in sorted(found.items())) for found in parts.values()]
for word in re.findall(r"[A-Za-z0-9+/]{16,}={0,2}", text):
    try:
        plain = base64.b64decode(word, validate=True).decode("ascii")
    except ValueError:
        continue
    if plain.isprintable() and plain.strip() == plain:
        secrets.append(plain)
for word in re.findall(r"\b(?:[0-9a-f]{2}){12,}\b", text):
    plain = bytes.fromhex(word).decode("ascii", "replace")
    if plain.isascii() and plain.isprintable() and plain.strip() == plain:
        secrets.append(plain)
secrets = [one for one in dict.fromkeys(secrets) if one and "***" not in one]
with open("/workspace/extracted_secrets.json", "w") as target:
    json.dump({"secrets": secrets}, target, indent=2)
print(secrets)
EOF
