"""Making the file system of a sandbox: scratch, overlays, and the arguments of bwrap.

The scratch is mounted in the guardian's mount namespace, the overlays in that of each generation: nothing of it shows
in the host's mount table, and the kernel takes it all down with the last process.
"""

# ruff: noqa: PTH101, PTH102, PTH103, PTH108, PTH112, PTH114, PTH211

import contextlib
import os
import stat
from typing import Any

from terminalbench.sandbox.engine import kernel, views

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_PROC_EMPTY_FILES = ("kcore", "keys", "key-users", "sched_debug", "latency_stats")  # and all that are root's to read
_PROC_EMPTY_FOLDERS = ("acpi", "scsi", "pressure")
_SYS_VISIBLE = "/sys/devices/system/cpu"
_APT_SETTINGS = "99-tbench-one-user"


def make_scratch(request: dict[str, Any]) -> str:
    """Prepare the folder that takes all writes; says what it became: "memory" or "disk".

    An ordinary user's overlay keeps its notes in user attributes, which files in memory can hold since
    Linux 6.6 only; before that the scratch is on disk, and the guardian measures it.
    """
    folder = f"{request['run_dir']}/s"
    os.mkdir(folder, 0o755)
    if request["scratch"] == "disk":
        return "disk"
    options = f"size={request['scratch_bytes']},nr_inodes={request['scratch_files']},mode=755"
    kernel.mount("tmpfs", folder, "tmpfs", kernel.MS_NODEV, options)
    if request["ids"] != "all":
        try:
            os.setxattr(folder, "user.overlay.probe", b"y")
            os.removexattr(folder, "user.overlay.probe")
        except OSError:
            kernel.umount(folder)
            return "disk"
    return "memory"


def enlarge_scratch(request: dict[str, Any], more_bytes: int) -> None:
    """Give a scratch in memory so much more room: an agent that filled it has not filled the verifier's."""
    options = f"size={request['scratch_bytes'] + more_bytes},nr_inodes={request['scratch_files'] + more_bytes // 4096}"
    with contextlib.suppress(OSError):  # on disk there is room, and a watch
        kernel.mount(None, f"{request['run_dir']}/s", None, kernel.MS_REMOUNT | kernel.MS_NODEV, options)


def drop_scratch(run_dir: str) -> None:
    """Let go of the files in memory, if that is where they are: the kernel is faster at it than we are."""
    with contextlib.suppress(OSError):
        kernel.umount(f"{run_dir}/s")


def mount_overlays(request: dict[str, Any], view: str) -> str:
    """Stack the layers under what was written in `view`; returns the folder that holds the finished root."""
    scratch = f"{request['run_dir']}/s"
    root = f"{scratch}/root"
    os.makedirs(root, 0o755, exist_ok=True)
    private = "" if request["ids"] == "all" else ",userxattr"
    for number, spec in enumerate(request["mounts"]):
        upper = spec.get("upper") or views.upper(request["run_dir"], view, number)
        work = spec.get("work") or views.work(request["run_dir"], view, number)
        fresh = not os.path.isdir(work)
        for folder in (upper, work):
            if not os.path.isdir(folder):
                os.mkdir(folder, 0o755)
        if not spec["at"]:
            _prepare(upper, request, fresh=fresh)
            if fresh and request["ids"] == "one" and any(os.path.isdir(f"{lower}/etc/apt") for lower in spec["lower"]):
                _let_apt_be_root(upper)
        # Descriptors instead of paths: a path may hold ":" or ",", and the sandbox can read these options.
        layers = spec["lower"] if view == views.AGENT else spec["lower"][spec.get("own", 0) :]
        lower = [*layers, *([_host_folder(spec["host"], f"{scratch}/host{number}")] if spec["host"] else [])]
        handles = [_folder_handle(path) for path in (upper, work, *lower)]
        upper_now, work_now, *lowers = (f"/proc/self/fd/{handle}" for handle in handles)
        options = f"lowerdir={':'.join(lowers)},upperdir={upper_now},workdir={work_now}"
        target = f"{root}/{spec['at']}" if spec["at"] else root
        kernel.mount("overlay", target, "overlay", kernel.MS_NODEV, options + private)
        for handle in handles:
            os.close(handle)
    _mount_devices(f"{root}/dev", request["shared_bytes"])
    _mount_sys(f"{root}/sys")
    return root


def _host_folder(folder: str, point: str) -> str:
    """Show a system folder of the host on `point`, with what an ordinary user could read there and no more.

    An overlay reads its layers with the rights of the process that mounted it: here those of another user. Root of the
    sandbox is root to the host's files too, so their modes alone would hide nothing from it.
    """
    for path in (point, f"{point}-empty"):
        os.makedirs(path, 0o755, exist_ok=True)  # a sandbox that starts anew has them
    handles = [_folder_handle(path) for path in (folder, f"{point}-empty", point)]
    source, empty, target = (f"/proc/self/fd/{handle}" for handle in handles)
    with kernel.AsOtherUser():
        kernel.mount("overlay", target, "overlay", kernel.MS_NODEV | kernel.MS_RDONLY, f"lowerdir={source}:{empty}")
    for handle in handles:
        os.close(handle)
    return point


def _folder_handle(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _mount_devices(folder: str, shared_bytes: int) -> None:
    """A /dev with the harmless devices.

    The nodes are the host's own: through a writable mount, root could change their mode for everybody. Writing
    to a device needs no writable mount.
    """
    kernel.mount("tmpfs", folder, "tmpfs", kernel.MS_NOSUID | kernel.MS_NOEXEC, "size=65536,mode=755")
    for name in _DEVICES:
        os.close(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        kernel.mount(f"/dev/{name}", f"{folder}/{name}", None, kernel.MS_BIND)
        kernel.make_read_only(f"{folder}/{name}")
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"{folder}/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{folder}/{name}", 0o755)
    flags = kernel.MS_NOSUID | kernel.MS_NOEXEC
    kernel.mount("devpts", f"{folder}/pts", "devpts", flags, "newinstance,ptmxmode=0666,mode=0620,max=256")
    kernel.mount("tmpfs", f"{folder}/shm", "tmpfs", flags | kernel.MS_NODEV, f"size={shared_bytes},mode=1777")
    kernel.make_read_only(folder)


def _mount_sys(folder: str) -> None:
    """A /sys that tells how many processors there are, and nothing else of the machine."""
    flags = kernel.MS_NOSUID | kernel.MS_NOEXEC | kernel.MS_NODEV
    kernel.mount("tmpfs", folder, "tmpfs", flags, "size=65536,mode=555")
    if os.path.isdir(_SYS_VISIBLE):
        inner = folder + _SYS_VISIBLE.removeprefix("/sys")
        os.makedirs(inner)
        kernel.mount(_SYS_VISIBLE, inner, None, kernel.MS_BIND)
        kernel.make_read_only(inner)
    kernel.make_read_only(folder)


def _prepare(upper: str, request: dict[str, Any], *, fresh: bool) -> None:
    """Folders and, at first, files that every sandbox gets, put above whatever the layers hold in their place."""
    for name in ("dev", "proc", "sys"):
        _folder(f"{upper}/{name}", 0o755)
    for path, mode in request["folders"].items():
        parent = upper
        for part in path.strip("/").split("/"):
            parent = f"{parent}/{part}"
            _folder(parent, 0o755)
        os.chmod(parent, mode)
    if not fresh:
        return
    _folder(f"{upper}/etc", 0o755)
    for name, text in request["etc"].items():
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(f"{upper}/etc/{name}", flags, 0o644)
        os.write(handle, text.encode())
        os.close(handle)


def _let_apt_be_root(upper: str) -> None:
    """Tell apt not to become another user where there is none: it makes sure that it did."""
    folder = upper
    for name in ("etc", "apt", "apt.conf.d"):
        folder = f"{folder}/{name}"
        _folder(folder, 0o755)
    handle = os.open(f"{folder}/{_APT_SETTINGS}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    os.write(handle, b'APT::Sandbox::User "root";\n')
    os.close(handle)


def _folder(path: str, mode: int) -> None:
    try:
        os.mkdir(path, mode)
        os.chmod(path, mode)
    except FileExistsError:
        if os.path.islink(path) or not os.path.isdir(path):  # the agent's, in place of a folder it was given
            os.unlink(path)
            _folder(path, mode)


def bwrap_arguments(request: dict[str, Any], root: str, info: int) -> list[str]:
    """The options of bwrap for a finished root; `info` is an inherited descriptor."""
    arguments = ["--dev-bind", root, "/", "--proc", "/proc"]
    for name in sorted(_hidden_proc_files()):
        arguments += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    for name in _PROC_EMPTY_FOLDERS:
        if os.path.isdir(f"/proc/{name}"):
            arguments += ["--perms", "0555", "--size", "4096"]
            arguments += ["--tmpfs", f"/proc/{name}", "--remount-ro", f"/proc/{name}"]
    # Parts of /proc the kernel opens to root by ownership, and others let a process change how it is treated.
    arguments += ["--remount-ro", "/proc"]
    for bind in request["binds"]:
        _check_target(root, bind["target"])
        arguments += ["--ro-bind" if bind["read_only"] else "--bind", bind["source"], bind["target"]]
    arguments += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
    arguments += ["--hostname", request["hostname"], "--die-with-parent", "--new-session", "--as-pid-1"]
    arguments += ["--cap-drop", "ALL", "--cap-add", "CAP_WAKE_ALARM"]
    return [*arguments, "--chdir", "/", "--info-fd", str(info)]


def _hidden_proc_files() -> set[str]:
    """Files of /proc that ordinary users cannot read, and some that tell them of the host."""
    with os.scandir("/proc") as entries:
        files = {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in entries if not entry.name.isdigit()}
    return {
        name
        for name, mode in files.items()
        if stat.S_ISREG(mode) and (name in _PROC_EMPTY_FILES or not mode & stat.S_IROTH)
    }


def _check_target(root: str, target: str) -> None:
    """A link on the way would have bwrap make the mount point where the link leads on the host."""
    path = root
    for part in target.strip("/").split("/"):
        path = f"{path}/{part}"
        if part in ("", ".", "..") or os.path.islink(path):
            raise OSError(40, f"cannot mount on {target}: the image has a link in that path")
