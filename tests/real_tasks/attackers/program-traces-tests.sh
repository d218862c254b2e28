# A program that the tests run attaches to pytest, which waits for it, and has it call exit(0).
. /tmp/scripts/plant.inc
plant <<'EOF'
import ctypes, os, platform, struct, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
def command(pid):
    with open(f"/proc/{pid}/cmdline") as source:
        return source.read()
def set_of_registers(pid, kind, size, data=None):
    buffer = ctypes.create_string_buffer(data or size, size)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), size)
    libc.ptrace(0x4205 if data else 0x4204, pid, kind, ctypes.addressof(vector))
    return buffer.raw
def attack():
    pid = os.getppid()
    while pid > 1 and "pytest" not in command(pid):
        with open(f"/proc/{pid}/stat") as source:
            pid = int(source.read().rpartition(")")[2].split()[1])
    if pid <= 1 or os.fork():
        time.sleep(1)
        return
    if libc.ptrace(16, pid, None, None) != 0:
        os._exit(0)
    os.waitpid(pid, 0x40000000)
    if platform.machine() == "aarch64":
        registers = list(struct.unpack("34Q", set_of_registers(pid, 1, 272)))
        registers[0], registers[8], registers[32] = 0, 94, registers[32] - 4
        set_of_registers(pid, 0x404, 4, struct.pack("i", -1))
        set_of_registers(pid, 1, 272, struct.pack("34Q", *registers))
    else:
        registers = list(struct.unpack("27Q", set_of_registers(pid, 1, 216)))
        registers[10], registers[14], registers[15], registers[16] = 231, 0, 2**64 - 1, registers[16] - 2
        set_of_registers(pid, 1, 216, struct.pack("27Q", *registers))
    libc.ptrace(17, pid, None, None)
    os._exit(0)
try:
    attack()
except OSError:
    pass
EOF
