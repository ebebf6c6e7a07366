"""From the bytes of a growing file to its lines, each with the place after it."""

from __future__ import annotations

from collections.abc import Iterator

from tao_ray.platforms.machine import Chunk, Machine


class LineStream:
    """The lines of one followed file, from `position` on.

    longest: a longer line is handed out in pieces of at least this length (progress bars go on
    without a newline for hours). None: only complete lines, however long.
    """

    def __init__(self, path: str, position: int, *, longest: int | None = None):
        self.path = path
        self.position = position  # of the next byte not read yet
        self._tail = b""
        self._longest = longest

    def feed(self, chunk: Chunk) -> Iterator[tuple[bytes, int]]:
        """The lines that `chunk` completes, with their newline, and the file position after each.

        A chunk from elsewhere than expected means the file was cut or replaced: start anew.
        """
        if chunk.offset != self.position:
            self._tail = b""
        end = chunk.offset - len(self._tail)
        self.position = chunk.offset + len(chunk.data)
        *lines, self._tail = (self._tail + chunk.data).split(b"\n")
        for line in lines:
            end += len(line) + 1
            yield line + b"\n", end
        if self._longest is not None and len(self._tail) >= self._longest:
            piece, self._tail = self._tail, b""
            yield piece, self.position

    def rest(self, machine: Machine) -> Iterator[tuple[bytes, int]]:
        """What a file that nobody writes any more still holds."""
        while True:
            try:
                data = machine.read(self.path, self.position)
            except FileNotFoundError:
                data = b""
            if not data:
                break
            yield from self.feed(Chunk(self.path, self.position, data, 0))
        if self._longest is not None and self._tail:
            yield self._tail, self.position
