cat > /home/user/backup_audit.sh <<'EOF'
#!/bin/bash
# Count the backups of each kind; a pattern without a match counts as 0.
shopt -s nullglob
for folder in daily weekly monthly; do
  for kind in db_backup:sql config_backup:tar.gz logs_backup:zip; do
    found=(/opt/backups/"$folder"/"${kind%%:*}"_*."${kind#*:}")
    echo "$folder/${kind%%:*}=${#found[@]}"
  done
done > /home/user/backup_report.txt
EOF
chmod +x /home/user/backup_audit.sh
/home/user/backup_audit.sh
