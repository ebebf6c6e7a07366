"""How artifacts lie in a storage: their files under their key, and a marker that says complete.

The marker of artifact ``a/b`` is the file ``a/.b.complete``, written last and deleted first. What
no marker covers is the rest of an interrupted operation, and invisible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tao_ray.storage.base import Storage

_SUFFIX = ".complete"


def check_key(key: str) -> str:
    """`key`, or ValueError if it is none."""
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in key or "\\" in key:
        raise ValueError(f"not a storage key (a relative path with '/'): {key!r}")
    if is_marker(key):
        raise ValueError(f"a storage key may not look like a marker ('.NAME{_SUFFIX}'): {key!r}")
    return key


def check_prefix(prefix: str) -> str:
    return check_key(prefix) if prefix else prefix


def marker(key: str) -> str:
    """Where the marker of an artifact is."""
    parent, slash, name = key.rpartition("/")
    return f"{parent}{slash}.{name}{_SUFFIX}"


def is_marker(path: str) -> bool:
    name = path.rpartition("/")[2]
    return len(name) > len(_SUFFIX) + 1 and name[0] == "." and name.endswith(_SUFFIX)


def ancestors(path: str) -> Iterator[str]:
    """``a`` and ``a/b`` for ``a/b/c``: the proper prefixes of whole parts."""
    parts = path.split("/")
    for length in range(1, len(parts)):
        yield "/".join(parts[:length])


def below(prefix: str, path: str) -> bool:
    """Whether `path` is `prefix` or lies below it."""
    return not prefix or path == prefix or path.startswith(f"{prefix}/")


def complete_files(found: Mapping[str, int], covered: Iterable[str] = ()) -> dict[str, int]:
    """Of everything found (path -> bytes, markers among it) the files of complete artifacts.

    covered: artifacts whose markers are not among `found` but which are known to be complete.
    """
    artifacts = set(covered)
    for path in found:
        if is_marker(path):
            parent, slash, name = path.rpartition("/")
            artifacts.add(f"{parent}{slash}{name[1 : -len(_SUFFIX)]}")
    return {
        path: size
        for path, size in sorted(found.items())
        if not is_marker(path)
        and (path in artifacts or any(parent in artifacts for parent in ancestors(path)))
    }


def covering(storage: Storage, prefix: str) -> list[str]:
    """The artifacts that a prefix is, or lies in: at most one, as artifacts do not nest."""
    keys = [*ancestors(prefix), prefix] if prefix else []
    return [key for key in keys if storage.exists(key)]


def refuse_nesting(storage: Storage, key: str) -> None:
    """ValueError if an artifact `key` would lie below another one, or above."""
    for parent in ancestors(key):
        if storage.exists(parent):
            raise ValueError(f"{key!r} would lie below the artifact {parent!r}")
    # Asked again: another writer of this key may just have replaced the artifact.
    if not storage.exists(key) and (inner := storage.list(key)) and not storage.exists(key):
        raise ValueError(f"{key!r} would swallow other artifacts ({next(iter(inner))!r})")
