"""One action of one network, with everything a run needs to know of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tao_ray.network.conventions import Conventions
from tao_ray.network.data import DataSource
from tao_ray.network.keys import KnownKeys, is_foreign
from tao_ray.network.objective import Metric
from tao_ray.network.package import CONFIG_PATH, Action, ModelPackage
from tao_ray.network.schema import SchemaParameter
from tao_ray.network.tree import get_path
from tao_ray.network.wiring import Download, Wiring

SEARCHABLE = frozenset(
    {
        "int",
        "float",
        "bool",
        "categorical",
        "ordered_int",
        "list_2",
        "list_3",
        "list_1_backbone",
        "subset_list",
        "optional_list",
    }
)
_ABSENT = object()


@dataclass(frozen=True)
class Network:
    """See `resolve_network`, which makes these.

    name: network_arch. package: None for a network the user described without one.
    image: container image, or None to run on the host. command_text: with ``{config_path}``.
    objective: what the action reports and is judged by; None for an action that is not judged.
    base_spec: template, overrides and data; not yet filled in: see `wiring`.
    checkpoint, teacher: the weights given by the user. secrets: spec key -> encryption key.
    data_sources, downloads: what must be on the machine before a job starts.
    notes: remarks a user should see before the run.
    partial: it was derived from another action's configuration (an evaluation of a tuned
        training), so values for keys it does not know are left out instead of refused.
    """

    name: str
    package: ModelPackage | None
    action: Action
    conventions: Conventions
    command_text: str
    config_format: str
    known: KnownKeys
    wiring: Wiring
    base_spec: dict[str, Any]
    image: str | None = None
    backend: str | None = None
    objective: Metric | None = None
    checkpoint: str | None = None
    data_sources: tuple[DataSource, ...] = ()
    downloads: tuple[Download, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    partial: bool = False

    @property
    def metric(self) -> str | None:
        """Name of the objective as the action reports it."""
        return self.objective.name if self.objective else None

    @property
    def direction(self) -> str | None:
        """``minimize`` or ``maximize``."""
        return self.objective.direction if self.objective else None

    @property
    def parameters(self) -> Mapping[str, SchemaParameter]:
        """The schema's parameters; empty without a schema."""
        return self.action.schema.parameters if self.action.schema else {}

    @property
    def known_keys(self) -> frozenset[str]:
        """Every spec key by name; `known` also tells keys below open lists and mappings."""
        return self.known.names

    def is_disabled(self, name: str) -> bool:
        """Whether the package forbids searching `name`."""
        return self.action.schema is not None and self.action.schema.is_disabled(name)

    def command(self, config_path: str) -> str:
        """The shell command for the spec at `config_path` (a path with a directory part)."""
        return self.command_text.replace(CONFIG_PATH, shlex.quote(config_path))

    @property
    def status_path(self) -> str | None:
        """Path of status.json below results_dir; None if the action writes none."""
        return f"{self.action.subcommand}/status.json" if self.conventions.writes_status else None

    @property
    def metric_file(self) -> str | None:
        """Path, below results_dir, of the JSON file that holds the objective, if one does."""
        return self.action.metric_file

    def effective(self, key: str, spec: Mapping[str, Any] | None = None) -> Any:
        """The value of `key` in `spec` (default: the base spec), else the network's own default."""
        parameter = self.parameters.get(key)
        default = parameter.default if parameter else None
        return get_path(self.base_spec if spec is None else spec, key, default)

    @property
    def evaluate_action(self) -> str | None:
        """The package's action that evaluates what this one trains, or None."""
        if self.package is None:
            return None
        wanted = (self.action.name.replace("train", "evaluate"), "evaluate")
        return next(
            (a for a in wanted if a in self.package.actions and a != self.action.name), None
        )

    def checkpoint_name(
        self, epoch: int, files: Collection[str], *, weights: bool = False
    ) -> str | None:
        """The checkpoint of the 1-based completed `epoch` among `files`, or None.

        files: paths below results_dir. A checkpoint that is a folder is found by the files in it
            and returned as the folder. weights: the file that evaluate and export take, where
            that is not the resumable one. Of several steps in one epoch the last wins.
        """
        pattern = self.conventions.checkpoint_pattern
        if weights and self.conventions.weights_pattern:
            pattern = self.conventions.weights_pattern
        number = epoch - 1 + self.conventions.checkpoint_first
        is_folder = pattern.endswith("/")
        regex = re.compile(r"(?:^|.*/)" + pattern.format(epoch=number) + ("" if is_folder else "$"))
        found = {
            m[0].rstrip("/"): int((m.groups() or ("0",))[0] or 0)
            for f in files
            if (m := regex.match(f))
        }
        return max(found, key=lambda f: (found[f], -f.count("/"), f), default=None)

    def default_search_names(self) -> tuple[str, ...]:
        """The parameters the package offers for this action, in the schema's order.

        Offered are leaves with ``automl_enabled: true`` (or those the action lists in
        skill_info.yaml) of a type that can be searched. Left out are parameters that the schema's
        default spec holds but the base spec does not (they belong to another mode of the network)
        and those in another action's block, see `is_foreign`.
        """
        schema = self.action.schema
        if schema is None:
            return ()
        listed = self.action.default_parameters
        names = listed or [p.name for p in schema.parameters.values() if p.automl_enabled]
        return tuple(
            n for n in names if n in schema.parameters and self._offered(n, schema.default)
        )

    def _offered(self, name: str, schema_default: Mapping[str, Any]) -> bool:
        in_default = get_path(schema_default, name, _ABSENT) is not _ABSENT
        in_base = get_path(self.base_spec, name, _ABSENT) is not _ABSENT
        return (
            self.parameters[name].type in SEARCHABLE
            and (in_base or not in_default)
            and not is_foreign(name, self.action)
        )
