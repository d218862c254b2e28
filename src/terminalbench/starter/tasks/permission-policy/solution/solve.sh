#!/bin/bash
set -eu
cat > /app/fix-permissions <<'PY'
#!/usr/bin/env python3
"""fix-permissions FOLDER: bring a tree in line with the permission policy."""

import os
import stat
import sys


def wanted_for_file(path, in_bin, secret):
    if secret:
        return 0o600
    if in_bin:
        with open(path, "rb") as stream:
            if stream.read(2) == b"#!":
                return 0o755
    return 0o644


def fix(path, mode):
    if stat.S_IMODE(os.lstat(path).st_mode) != mode:
        os.chmod(path, mode)


def walk(folder, name, secret):
    secret = secret or name == b"secrets"
    mode = stat.S_IMODE(os.lstat(folder).st_mode)
    if mode & 0o700 != 0o700:
        os.chmod(folder, mode | 0o700)
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            walk(entry.path, entry.name, secret)
        elif entry.is_file(follow_symlinks=False):
            fix(entry.path, wanted_for_file(entry.path, name == b"bin", secret))
    fix(folder, 0o700 if secret else 0o1777 if name == b"drop" else 0o755)


root = os.fsencode(sys.argv[1]) if len(sys.argv) == 2 else b""
root = root.rstrip(b"/") or root
if not root or os.path.islink(root) or not os.path.isdir(root):
    sys.exit(print("usage: fix-permissions FOLDER", file=sys.stderr) or 2)
walk(root, os.path.basename(os.path.abspath(root)), False)
PY
chmod 755 /app/fix-permissions
/app/fix-permissions /app/site
