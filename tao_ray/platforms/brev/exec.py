"""A machine reached by `brev exec`, where an SSH connection of our own is impossible.

`brev exec` has no standard input, prints the instance's name after the output, hides the exit
status, shows the command in process lists, and runs a command that failed, or whose link broke, a
second time. So each command here is one word in base64 that runs once, however often it is sent:
the first run makes a directory of its name and leaves there what it said; a later one waits for
that and repeats it. It always exits with 0 and says its status after a random marker.

What it cannot do: anything secret, for the reason above; larger files onto the machine; a stream
(files are looked at every few seconds).
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import queue
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from tao_ray.files import move_tree
from tao_ray.platforms import ssh_scripts as scripts
from tao_ray.platforms.base import LinkError, PlatformError
from tao_ray.platforms.brev.cli import BrevCli
from tao_ray.platforms.brev.errors import BrevError
from tao_ray.platforms.machine import Chunk, CommandResult
from tao_ray.platforms.process_job import script
from tao_ray.platforms.scripted import (
    ScriptedMachine,
    follow_script,
    pack,
    parse_followed,
    unpack,
)

_LONGEST = 120_000  # bytes of one argument; Linux allows 128 KiB
_PIECE = 64 << 10  # of a file, on its way to the machine
_LARGEST_PUT = 4 << 20
_PART = 4 << 20  # of a file, on its way from the machine
_LOOK_S = 3.0
_OVERHEAD_S = 45.0  # of the CLI: its look-ups, its second attempt

# Given: mark, text and input in base64, seconds.
_ONCE = r"""
umask 077
all=$HOME/.tao-ray-exec
here=$all/$mark
mkdir -p "$all"
find "$all" -mindepth 1 -maxdepth 1 -mmin +120 -exec rm -rf {} + 2> /dev/null
if mkdir "$here" 2> /dev/null; then
    echo "$input" | base64 -d > "$here/in"
    echo "$text" | base64 -d > "$here/sh"
    timeout -k 5 "$seconds" sh "$here/sh" < "$here/in" > "$here/out" 2> "$here/err"
    echo $? > "$here/code.new"
    mv "$here/code.new" "$here/code"
else
    tries=0
    while [ ! -e "$here/code" ] && [ $tries -lt "$seconds" ]; do
        tries=$((tries + 1))
        sleep 1
    done
fi
echo
echo "$mark $(cat "$here/code") $(base64 -w 0 "$here/out"). $(base64 -w 0 "$here/err")."
exit 0
"""


class ExecMachine(ScriptedMachine):
    """See `tao_ray.platforms.machine.Machine`, and the module for its limits.

    cli: for tests; by default this process's. It is not pickled.
    """

    poll_interval = _LOOK_S

    def __init__(self, name: str, cli: BrevCli | None = None):
        self.name = name
        self._cli = cli

    def __getstate__(self) -> dict[str, object]:
        return {"name": self.name, "_cli": None}

    def run(self, script: str, *, stdin: bytes = b"", timeout: float = 60.0) -> CommandResult:
        """See `Machine.run`; unlike there, `stdin` is visible to other users of both hosts."""
        mark = f"tao-{secrets.token_hex(8)}"
        command = _once(mark, script, stdin, timeout)
        if len(command) > _LONGEST:
            raise self._too_large(f"a command of {len(command)} bytes")
        if self._cli is None:
            self._cli = BrevCli()
        try:
            said = self._cli.exec(self.name, command, timeout + _OVERHEAD_S)
        except BrevError as error:
            raise LinkError(error.message, where=self.name, remedy=error.remedy) from error
        for line in said.splitlines():
            if line.startswith(f"{mark} "):
                code, out, err = line.split(" ")[1:]
                with contextlib.suppress(ValueError):
                    return CommandResult(
                        int(code), base64.b64decode(out[:-1]), base64.b64decode(err[:-1])
                    )
        raise LinkError("a command's answer did not arrive in full", where=self.name)

    def follow(self, positions: Mapping[str, int]) -> Iterator[Chunk | None]:
        found: queue.Queue[Chunk | Exception] = queue.Queue()
        over = threading.Event()
        look = threading.Thread(target=self._look, args=(dict(positions), found, over), daemon=True)
        look.start()
        try:
            while True:
                try:
                    item = found.get(timeout=0.8)
                except queue.Empty:
                    yield None
                    continue
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            over.set()

    def _look(
        self,
        at: dict[str, int],
        found: queue.Queue[Chunk | Exception],
        over: threading.Event,
    ) -> None:
        """Look at the files again and again, in a thread: a look takes longer than a second."""
        inodes: dict[str, int] = {}
        paths = list(at)
        pause = 0.0
        while not over.wait(pause):
            pause = _LOOK_S
            try:
                said = self._run("follow files", follow_script(paths, at, inodes, once=True))
            except Exception as error:
                found.put(error)
                return
            for line in said.stdout.splitlines():
                chunk = parse_followed(line, paths)
                if chunk is not None:
                    at[chunk.path] = chunk.offset + len(chunk.data)
                    inodes[chunk.path] = chunk.file
                    found.put(chunk)
                    pause = 0.0

    def get(self, path: str, destination: str) -> None:
        target = Path(destination)
        target.parent.mkdir(parents=True, exist_ok=True)
        far = f"/tmp/tao-ray-{secrets.token_hex(8)}"
        stage = Path(tempfile.mkdtemp(prefix=".get-", dir=target.parent))
        try:
            text = script(f"umask 077\nexec > {far}\n", scripts.GET, path=path)
            result = self.run(text, timeout=600.0)
            if result.code not in (0, 1):
                raise self._failed(f"fetch {path}", path, result)
            with open(stage / "sent", "wb") as sent:
                while part := self.read(far, sent.tell(), _PART):
                    sent.write(part)
            with open(stage / "sent", "rb") as sent:
                is_tree = unpack(sent, stage / "content")
            if result.code and not is_tree:
                raise self._failed(f"fetch {path}", path, result)
            if is_tree:
                move_tree(stage / "content", target)
            else:
                (stage / "content").replace(target)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
            with contextlib.suppress(PlatformError):
                self.remove(far)

    def put(self, source: str, path: str) -> None:
        origin = Path(source)
        far = f"/tmp/tao-ray-{secrets.token_hex(8)}"
        with tempfile.TemporaryFile() as file:
            pack(file, origin)
            if file.tell() > _LARGEST_PUT:
                raise self._too_large(f"{origin.name}, {file.tell() / 1e6:.1f} MB")
            file.seek(0)
            try:
                while piece := file.read(_PIECE):
                    self._run(f"store {path}", f"umask 077\ncat >> {far}\n", stdin=piece)
                kind = "tree" if origin.is_dir() else "file"
                text = script(f"exec < {far}\n", scripts.PUT, path=path, kind=kind)
                self._run(f"store {path}", text, timeout=300.0)
            finally:
                with contextlib.suppress(PlatformError):
                    self.remove(far)

    def close(self) -> None:
        """Nothing is held."""

    def _too_large(self, what: str) -> PlatformError:
        return PlatformError(
            f"{what} cannot be brought onto the machine by `brev exec`",
            where=self.name,
            remedy="use platform.link: ssh, or have the machine fetch it itself",
        )


def _once(mark: str, text: str, stdin: bytes, timeout: float) -> str:
    """One line without any character that a shell minds."""
    encoded = base64.b64encode(text.encode(errors="surrogateescape")).decode()
    whole = script(
        _ONCE,
        mark=mark,
        text=encoded,
        input=base64.b64encode(stdin).decode(),
        seconds=max(1, round(timeout)),
    )
    return f"echo {base64.b64encode(gzip.compress(whole.encode())).decode()}|base64 -d|gunzip|sh"
