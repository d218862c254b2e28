python3 - <<'EOF'
base, warmup, steady, epochs = 0.001, 10, 60, 100
with open("/workspace/lr_schedule.txt", "w") as target:
    for epoch in range(epochs):
        if epoch < warmup:
            rate = base * (0.1 + 0.9 * epoch / warmup)
        elif epoch <= steady:
            rate = base
        else:
            rate = base * 0.95 ** (epoch - steady)
        target.write(f"{rate:.8f}\n")
EOF
