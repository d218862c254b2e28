mkdir -p /solution /opt/monitor/logs
cat > /solution/fix_background_output.sh <<'EOF'
#!/bin/bash
# Each monitor writes to a log file of its own: >> appends standard output, 2>&1 sends errors to the same place,
# </dev/null keeps it from reading the terminal.
LOGS=/opt/monitor/logs
mkdir -p "$LOGS"
for name in network_monitor disk_monitor log_monitor; do
  nohup "/opt/monitor/collectors/$name.sh" >> "$LOGS/$name.log" 2>&1 < /dev/null &
done
echo "monitors started, logs in $LOGS"
EOF
chmod +x /solution/fix_background_output.sh
printf 'OUTPUT_REDIRECTED=yes\nOUTPUT_PRESERVED=yes\nTERMINAL_CLEAN=yes\n' > /solution/verification.txt
