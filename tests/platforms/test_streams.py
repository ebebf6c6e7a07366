"""Lines from chunks: any cut, cut files, endless lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tao_ray.platforms.machine import Chunk
from tao_ray.platforms.streams import LineStream


def feed(stream: LineStream, offset: int, data: bytes) -> list[tuple[bytes, int]]:
    return list(stream.feed(Chunk("f", offset, data, 1)))


@given(st.lists(st.sampled_from([b"a", b"\n", b"bc", b"\r", b"\n\n"])), st.data())
def test_any_chunking_gives_the_same_lines(parts: list[bytes], data: st.DataObject) -> None:
    content = b"".join(parts)
    stream, begin = LineStream("f", 10), 0
    seen: list[tuple[bytes, int]] = []
    while begin < len(content):
        end = data.draw(st.integers(begin + 1, len(content)))
        seen += feed(stream, 10 + begin, content[begin:end])
        begin = end
    complete = content[: content.rfind(b"\n") + 1]
    assert b"".join(line for line, _ in seen) == complete
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line, _ in seen)
    position = 10
    for line, after in seen:
        position += len(line)
        assert after == position


def test_a_file_begun_anew_drops_the_unfinished_line() -> None:
    stream = LineStream("f", 0)
    assert feed(stream, 0, b"one\ntw") == [(b"one\n", 4)]
    assert feed(stream, 0, b"new\n") == [(b"new\n", 4)]


def test_an_endless_line_comes_in_pieces() -> None:
    stream = LineStream("f", 0, longest=4)
    assert feed(stream, 0, b"ab") == []
    assert feed(stream, 2, b"cd") == [(b"abcd", 4)]
    assert feed(stream, 4, b"e\nf") == [(b"e\n", 6)]
