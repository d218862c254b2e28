"""The filter of system calls, seen by running its own code."""

import signal
import socket
import struct

from terminalbench.sandbox.engine import seccomp


def test_the_filter_also_covers_the_other_calling_conventions() -> None:
    """x32 numbers and 32-bit calls are second doors to the same rooms; seen by running the filter's own code."""
    for machine, arch in (("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)):
        program = seccomp.program(machine)
        column = 0 if machine == "x86_64" else 1
        for name, numbers in seccomp._numbers(seccomp._CALLS).items():
            if numbers[column]:
                assert _judge(program, arch, numbers[column]) == 0x00050001, name
        assert _judge(program, arch, 435) == 0x00050026
        clone = (56, 220)[column]
        assert _judge(program, arch, clone, 0x10000000 | signal.SIGCHLD) == 0x00050001
        assert _judge(program, arch, clone, 0x01200011) == 0x7FFF0000
        assert _judge(program, arch, (41, 198)[column], socket.AF_INET) == 0x7FFF0000
        assert _judge(program, 0x40000003, 1) == 0x00050001
    assert _judge(seccomp.program("x86_64"), 0xC000003E, 0x40000000 + 165) == 0x00050026
    assert seccomp.program("riscv64") == b""
    for machine, arch, chown, setuid in (("x86_64", 0xC000003E, 260, 105), ("aarch64", 0xC00000B7, 54, 146)):
        answers = [_judge(seccomp.with_one_user(machine), arch, call) for call in (chown, setuid, 0)]
        assert answers == [0x00050000, 0x00050000, 0x7FFF0000], "done, as far as it says"


def _judge(program: bytes, arch: int, number: int, argument: int = 0) -> int:
    data = struct.pack("=IIQ6Q", number, arch, 0, argument, 0, 0, 0, 0, 0)
    steps = [struct.unpack("=HBBI", program[i : i + 8]) for i in range(0, len(program), 8)]
    at, value = 0, 0
    while True:
        code, yes, no, k = steps[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, k)
        elif code == 0x06:
            return k
        else:
            holds = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code]
            at += yes if holds else no
