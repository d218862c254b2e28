mkdir -p /solution
python3 - <<'EOF'
import json
import re
from email import message_from_string
from email.utils import parseaddr
from pathlib import Path

phishing, honest = [], []
for path in sorted(Path("/emails").glob("*.eml")):
    mail = message_from_string(path.read_text(errors="replace"))
    told = " ".join(value for name, value in mail.items() if "auth" in name.lower() or "spf" in name.lower()).lower()
    sender, reply = (parseaddr(mail.get(name, ""))[1].rpartition("@")[2].lower() for name in ("From", "Reply-To"))
    bad = bool(re.search(r"(spf|dkim|dmarc)=(fail|softfail|none)|^\s*(fail|softfail)", told)) or bool(reply and reply != sender)
    (phishing if bad else honest).append(path.name)
result = {"phishing_emails": phishing, "legitimate_emails": honest, "suspicious_count": len(phishing)}
Path("/solution/phishing_analysis.json").write_text(json.dumps(result, indent=2))
print(result)
EOF
