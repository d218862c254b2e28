"""A container runtime for the official evaluator in tests: images are folders, containers are bubblewrap.

`$STUB_IMAGES` is a JSON file: the folder with the repository of each image, by the image's name.
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def from_env():
    return _Client()


class _Client:
    def __init__(self):
        self.images = self.containers = self
        self._known = json.loads(Path(os.environ["STUB_IMAGES"]).read_text())

    def pull(self, image, **_options):
        self.get(image)

    def get(self, image):
        return self._known[image]

    def run(self, image, *, volumes, entrypoint, command, **_options):
        return _Container(self.get(image), volumes, [entrypoint, *command])


class _Container:
    def __init__(self, app, volumes, command):
        self._app, self._volumes, self._command = app, volumes, command

    def wait(self):
        with tempfile.TemporaryDirectory() as folder:
            app = Path(folder, "app")
            shutil.copytree(self._app, app, symlinks=True)
            mounts = [["--bind", str(app), "/app"]]
            mounts += [["--bind", source, at["bind"]] for source, at in self._volumes.items()]
            system = [["--ro-bind", path, path] for path in ("/usr", "/etc")]
            system += [["--symlink", f"usr/{name}", f"/{name}"] for name in ("bin", "sbin", "lib", "lib64")]
            system += [["--ro-bind", "/usr/bin/python3", "/opt/bin/python"], ["--dev", "/dev"], ["--proc", "/proc"]]
            options = [word for group in [*system, ["--tmpfs", "/tmp"], *mounts] for word in group]
            env = ["--clearenv", "--setenv", "PATH", "/opt/bin:/usr/bin:/bin", "--setenv", "HOME", "/tmp"]
            safe = ["--setenv", "GIT_CONFIG_COUNT", "1", "--setenv", "GIT_CONFIG_KEY_0", "safe.directory"]
            safe += ["--setenv", "GIT_CONFIG_VALUE_0", "*"]
            bwrap = os.environ["STUB_BWRAP"]
            ran = subprocess.run(
                [bwrap, "--unshare-all", "--die-with-parent", *options, *env, *safe, "--chdir", "/app", *self._command],
                capture_output=True,
                timeout=600,
                check=False,
            )
            print((ran.stdout + ran.stderr).decode(errors="replace"))
        return {"StatusCode": ran.returncode}
