cd /var/gitlab-diagnostics
auto=$(grep -A1 'gc.auto"' gitaly-config.toml | grep -o '"[0-9]*"')
cat > /root/analysis.txt <<EOF
CAUSE: gc.auto=$auto in Gitaly's configuration starts git gc and repack after almost every push, which saturates the disk
COMPONENT: gitaly
CONSTRAINT: disk
EOF
