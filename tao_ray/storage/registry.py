"""From a URI to its storage."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tao_ray.storage.base import Storage, StorageError
from tao_ray.storage.layout import check_prefix


def open_storage(uri: str) -> Storage:
    """The storage at ``file:///path``, a plain path, or ``s3://bucket/prefix``.

    Touches nothing yet. Raises StorageError for any other URI.
    """
    if "://" not in uri:
        uri = Path(uri).expanduser().absolute().as_uri()
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and path:
        from tao_ray.storage.file import FileStorage

        return FileStorage(Path(path))
    if parts.scheme == "s3" and parts.netloc and not parts.query and not parts.fragment:
        from tao_ray.storage.s3 import S3Storage

        return S3Storage(parts.netloc, check_prefix(path.strip("/")))
    raise StorageError(
        f"not a storage: {uri!r}",
        remedy="use a path, file:///absolute/path or s3://bucket/prefix",
    )
