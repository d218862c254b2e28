"""Run a command where a folder is on an overlay, as all of a container is: `python stacked.py FOLDER COMMAND...`."""

import os
import sys
from pathlib import Path

from ordinary import _MS_PRIVATE, _MS_REC, mount

if __name__ == "__main__":
    folder, *command = sys.argv[1:]
    os.unshare(os.CLONE_NEWNS)
    mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    space = Path("/mnt")
    mount("tmpfs", str(space), "tmpfs", 0, "mode=755")
    for name in ("upper", "work"):
        (space / name).mkdir()
    mount("overlay", folder, "overlay", 0, f"lowerdir={folder},upperdir={space}/upper,workdir={space}/work")
    os.execv(command[0], command)
