"""The helper process of the local sandbox. Standard library only; runs isolated from the caller's packages.

    caller (Harbor)  --request + descriptors-->  helper (fork server, one per caller)
                                                   `-- guardian, one per sandbox: mounts, bwrap, limits
                                                         `-- porter: inside, with few rights and out of reach
                                                               `-- one process per command or transfer

Once a process has entered a sandbox, everything it could load from disk belongs to the agent. So the
helper imports all it needs first, then empties its import path; and code that runs inside uses system
calls only: no lazy import, no name service (`getpwnam` would load a library chosen by the agent).
"""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of a command that has none of its own."""
