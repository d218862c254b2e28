# Settings, a project, an environment and caches of uv that lead to a forged pytest.
. /tmp/scripts/plant.inc
forged_index
for folder in "$PWD" /tmp /root/.config/uv /etc/uv /; do
  mkdir -p "$folder"
  printf 'index-url = "file:///tmp/index"\nfind-links = ["/tmp/index/pytest"]\nno-index = true\n' > "$folder/uv.toml"
done
printf '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3"\ndependencies = []\n' > "$PWD/pyproject.toml"
mkdir -p /root/.local/bin /root/.cache/uv /root/.local/share/uv
printf '#!/bin/sh\nexit 0\n' | tee /root/.local/bin/uv > /root/.local/bin/uvx
chmod 755 /root/.local/bin/uv /root/.local/bin/uvx
