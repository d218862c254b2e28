python3 - <<'EOF'
import csv
from math import erfc, sqrt

users, converted = {}, {}
with open("/home/user/ab_test_data.csv") as source:
    for row in csv.DictReader(source):
        name = row["model_variant"]
        users[name] = users.get(name, 0) + 1
        converted[name] = converted.get(name, 0) + int(row["converted"])
(a, b) = ("model_a", "model_b")
n, m = users.get(a, 0), users.get(b, 0)
decision = "continue_test"
if min(n, m) >= 5000:
    p, q = converted[a] / n, converted[b] / m
    pooled = (converted[a] + converted[b]) / (n + m)
    z = (p - q) / sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    if erfc(abs(z) / sqrt(2)) < 0.05 and abs(p - q) >= 0.015:
        decision = a if p > q else b
with open("/home/user/deployment_decision.txt", "w") as target:
    target.write(decision + "\n")
EOF
