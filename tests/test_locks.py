"""A lock is one process's, ends with it, and is waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tao_ray.locks import try_lock

_HOLD = """
import sys
from tao_ray.locks import try_lock
file = open(sys.argv[1], "a")
print(try_lock(file, 0.0), flush=True)
sys.stdin.read()
"""


def test_a_lock_is_free_when_its_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        with open(path, "a") as file:
            assert not try_lock(file, 0.0)
            assert not try_lock(file, -1.0)
            holder.kill()
            assert try_lock(file, 10.0)
    with open(path, "a") as again:
        assert try_lock(again, 0.0)
