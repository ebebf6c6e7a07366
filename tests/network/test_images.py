"""Images that are named by a key of the skill bank's versions file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tao_ray.network.images import resolve_image
from tao_ray.network.schema import PackageError

URI = "nvcr.io/nvidia/tao/tao-toolkit:7.1.0-pyt"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "versions.yaml").write_text(f"images:\n  tao_toolkit:\n    pyt: {URI}\n")
    directory = tmp_path / "skills" / "models" / "tao-train-toy"
    directory.mkdir(parents=True)
    return directory


def test_a_key_is_looked_up(package: Path) -> None:
    assert resolve_image("images.tao_toolkit.pyt", package) == URI


@pytest.mark.parametrize("image", [None, URI, "images.example.org/toy:1", "toy"])
def test_anything_else_is_an_image(package: Path, image: str | None) -> None:
    assert resolve_image(image, package) == image


def test_an_unknown_key_lists_the_known(package: Path) -> None:
    with pytest.raises(PackageError) as caught:
        resolve_image("images.tao_toolkit.deploy", package)
    assert "images.tao_toolkit.pyt" in str(caught.value)


def test_a_key_without_a_bank(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=r"there is none above the package"):
        resolve_image("images.tao_toolkit.pyt", tmp_path / "package")
    with pytest.raises(PackageError):
        resolve_image("images.tao_toolkit.pyt", None)
