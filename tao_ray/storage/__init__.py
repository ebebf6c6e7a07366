"""Where artifacts are kept."""

from tao_ray.storage.base import Storage, StorageError
from tao_ray.storage.registry import open_storage

__all__ = ["Storage", "StorageError", "open_storage"]
