# Settings of pip that lead to a forged pytest, and packages that are there already.
. /tmp/scripts/plant.inc
forged_index
for file in /etc/pip.conf /root/.pip/pip.conf /root/.config/pip/pip.conf /usr/pip.conf "$PWD/pip.conf"; do
  mkdir -p "$(dirname "$file")"
  printf '[global]\nindex-url = file:///tmp/index\nno-index = true\nfind-links = /tmp/index/pytest\nforce-reinstall = true\n' > "$file"
done
printf '[distutils]\nindex-servers = x\n' > /root/.pypirc
printf 'machine pypi.org login x password y\n' > /root/.netrc
export PIP_FIND_LINKS=/tmp/index/pytest PIP_NO_INDEX=1 PIP_BREAK_SYSTEM_PACKAGES=1
pip3 install --quiet --force-reinstall --target "$PWD" pytest
pip3 install --quiet --force-reinstall --user pytest
pip3 install --quiet --force-reinstall pytest
