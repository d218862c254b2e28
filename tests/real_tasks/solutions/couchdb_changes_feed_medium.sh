python3 - <<'EOF'
import json

last, count = {}, 0
with open("/tmp/inventory_changes.jsonl") as feed:
    for line in feed:
        if line.strip():
            change = json.loads(line)
            last[change["id"]] = change["doc"]
            count += 1
low = sorted(key for key, doc in last.items() if doc.get("category") == "electronics" and doc.get("stock_level", 10) < 10)
with open("/tmp/critical_stock.json", "w") as target:
    json.dump({"total_changes_processed": count, "critical_items_count": len(low), "items": low}, target, indent=2)
EOF
