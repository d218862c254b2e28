import subprocess
import sys

FIRST_MEETINGS = """
import sys, threading
import msgspec
from terminalbench.decode import convert, decode

THREADS = 6
sys.setswitchinterval(1e-6)


def made(number):
    inner = msgspec.defstruct(f"Inner{number}", [(f"field_{i}", "int | None", None) for i in range(20)])
    return msgspec.defstruct(f"Outer{number}", [("inner", inner), ("names", "list[str]", ())])


def meet(kind, together, read):
    together.wait()
    assert read(kind).inner.field_3 == 1


plain = {"inner": {"field_3": 1}}
reads = (lambda kind: convert(plain, kind), lambda kind: decode(msgspec.json.encode(plain), kind))
for number in range(40):
    kind, together = made(number), threading.Barrier(THREADS)
    threads = [threading.Thread(target=meet, args=(kind, together, reads[i % 2])) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("alive")
"""


def test_threads_that_meet_a_type_for_the_first_time_at_once_do_not_end_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_MEETINGS], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")
