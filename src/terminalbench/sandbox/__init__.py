"""The local sandbox: a Harbor environment without daemon, image registry or root.

    environment   LocalSandbox, the class Harbor loads (`container_env = "local"`)
    session       one running sandbox: start, run, put, get, kill, stop
    build         Dockerfile to layer, once per content
    base          what the sandbox sees as its system: host folders or a rootfs
    probe         can this machine run it, and if not, what is missing
    engine        the helper process: namespaces, mounts, limits (standard library only)

Nothing here is imported before somebody asks for it.
"""
