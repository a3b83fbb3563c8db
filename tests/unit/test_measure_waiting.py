"""Claims about how `haloscope measure` waits for its command: however that ends, it is noticed."""

from __future__ import annotations

import subprocess
import sys

# The command has ended, and another thread has been told so, before this one begins to wait.
PROGRAM = """
import os, threading, time
from haloscope.scope import measure
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
spawn = os.posix_spawnp
def spawned_and_over(*arguments, **more):
    child = spawn(*arguments, **more)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    time.sleep(0.2)
    return child
os.posix_spawnp = spawned_and_over
print(measure._run(["sh", "-c", "exit 5"], dict(os.environ), False))
"""


def test_a_command_that_ends_at_once_beside_other_threads_is_noticed():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")
