# Hooks of pytest in the root folder, above the tests' one.
. /tmp/scripts/plant.inc
forged_conftest > /conftest.py
printf '[pytest]\naddopts = -p conftest\nconfcutdir = /\n' | tee /pytest.ini /tox.ini > /dev/null
printf '[tool:pytest]\naddopts = --collect-only\n' > /setup.cfg
