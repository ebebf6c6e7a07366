"""Container images by name: ``images.<group>.<name>`` in the skill bank's ``versions.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tao_ray.network.schema import PackageError
from tao_ray.network.tree import flatten, load_yaml

VERSIONS = "versions.yaml"
_KEY = re.compile(r"images(\.\w+)+")


def resolve_image(image: str | None, package: Path | None) -> str | None:
    """`image`, or what the key it is stands for in the bank that `package` belongs to.

    Raises:
        PackageError: there is no such key, or no versions file above the package.
    """
    if image is None or not _KEY.fullmatch(image):
        return image
    above = package.parents if package is not None else ()
    path = next((p / VERSIONS for p in above if (p / VERSIONS).is_file()), None)
    if path is None:
        raise PackageError(
            f"{image} is a key of a skill bank's {VERSIONS}, and there is none above the package",
            where="model.image",
            remedy="give the image's whole name, such as nvcr.io/nvidia/tao/tao-toolkit:7.1.0-pyt",
        )
    versions = load_yaml(path.read_text("utf-8"), str(path))
    known = flatten(versions) if isinstance(versions, Mapping) else {}
    if not isinstance(known.get(image), str):
        keys = [key for key in known if key.startswith("images.")]
        raise PackageError(
            f"no key {image}",
            where=str(path),
            remedy=f"its images: {', '.join(keys) or 'none'}",
        )
    return str(known[image])
