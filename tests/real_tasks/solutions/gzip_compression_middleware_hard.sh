cd /app
python3 - <<'EOF'
from pathlib import Path

path = Path("middleware.py")
text = path.read_text()
old = "    accept_encoding = request_headers.get('Accept-Encoding', '')\n"
new = """    # Names of headers have no case
    named = {name.lower(): value for name, value in request_headers.items()}
    accept_encoding = named.get('accept-encoding', '')
"""
assert old in text
path.write_text(text.replace(old, new))
EOF
python3 test_middleware.py
