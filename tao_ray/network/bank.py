"""Find a model package: a directory, or a name in the skill bank."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tao_ray.network.package import INFO, ModelPackage, read_package
from tao_ray.network.schema import PackageError

BANK_VARIABLE = "TAO_SKILL_BANK_PATH"

_STANDIN = Path(__file__).parent.parent / "standin" / "package"
_BUILT_IN = {"digits_mlp": _STANDIN, "standin": _STANDIN}


def load_package(ref: str, base: Path, bank: Path | None = None) -> ModelPackage:
    """The package that `ref` means.

    ref: a built-in name (``digits_mlp``), a directory (relative to `base`), or a directory name,
        alias or network_arch of a package in `bank`.
    bank: the skill bank's root or its directory of models; default ``$TAO_SKILL_BANK_PATH``.

    Raises:
        PackageError: nothing or more than one package has that name, or it is malformed.
    """
    if ref in _BUILT_IN:
        return replace(read_package(_BUILT_IN[ref]), name=ref)
    directory = base / Path(ref).expanduser()
    if os.sep in ref or ref.startswith((".", "~")):
        if not directory.is_dir():
            raise PackageError(
                f"no such directory: {directory}",
                where="model.package",
                remedy=f"give a package's directory, or its name with {BANK_VARIABLE} set",
            )
        return read_package(directory)
    if (directory / INFO).is_file():
        return read_package(directory)
    return _by_name(ref, bank)


def _by_name(ref: str, bank: Path | None) -> ModelPackage:
    if bank is None:
        if not os.environ.get(BANK_VARIABLE):
            near = difflib.get_close_matches(_normal(ref), _BUILT_IN, n=1)
            raise PackageError(
                f"{ref!r} is no directory, and no skill bank is set to look the name up in",
                where="model.package",
                remedy=(f"did you mean {near[0]!r}? Or " if near else "")
                + f"set {BANK_VARIABLE} to the skill bank, or give the package's directory",
            )
        bank = Path(os.environ[BANK_VARIABLE]).expanduser()
    directories = list(_packages(bank))
    if not directories:
        raise PackageError(
            f"no model packages in {bank}",
            where=BANK_VARIABLE,
            remedy="point it at the skill bank (it holds skills/models) or at the models directory",
        )
    for directory in directories:  # the unique key; needs no package read
        if directory.name == ref:
            return read_package(directory)
    packages = [read_package(d) for d in directories]
    found = [p for p in packages if _normal(ref) in map(_normal, _names(p))]
    if len(found) > 1:
        raise PackageError(
            f"{ref!r} names {len(found)} packages: {', '.join(p.name for p in found)}",
            where="model.package",
            remedy="give one of these names",
        )
    if not found:
        known = {_normal(n): n for n in _BUILT_IN}
        known |= {_normal(n): n for p in packages for n in _names(p)}
        near = difflib.get_close_matches(_normal(ref), known, n=3, cutoff=0.4)
        names = [known[n] for n in near] or sorted(p.name for p in packages)
        raise PackageError(
            f"no package is called {ref!r} in {bank}",
            where="model.package",
            remedy=f"{'nearest names' if near else 'its packages'}: {', '.join(names)}",
        )
    return found[0]


def _packages(bank: Path) -> Iterator[Path]:
    nested = bank / "skills" / "models"
    root = nested if nested.is_dir() else bank
    if root.is_dir():
        yield from (d for d in sorted(root.iterdir()) if (d / INFO).is_file())


def _names(package: ModelPackage) -> tuple[str, ...]:
    return (package.name, package.network_arch, *package.aliases)


def _normal(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")
