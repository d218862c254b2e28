"""The local sandbox: a Harbor environment without daemon, image registry or root.

environment   LocalSandbox, the class Harbor loads (`container_env = "local"`)
session       one running sandbox: start, run, put, get, kill, stop
builds        Dockerfile to layer, once per content
images        images of registries and archives
root_filesystem   what the sandbox sees as its system: host folders, an image or a rootfs
activity      signs of life of a trial, and the answers 429 in its agent's logs
probe         can this machine run it, and if not, what is missing
engine        the helper process: namespaces, mounts, limits (standard library only)
"""

CHECKED = "TBENCH_SANDBOX_CHECKED"
"""Set for the jobs of a run on this machine, whose check has started a sandbox: they need not try one first."""
