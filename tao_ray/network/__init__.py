"""A TAO network as its model package describes it.

`resolve_network` turns a configuration into a `Network`; `build_spec` makes the spec of one of its
jobs. Search ranges are in `tao_ray.network.ranges`, the status stream in `tao_ray.network.status`.
"""

from tao_ray.network.bank import load_package
from tao_ray.network.conventions import Conventions, conventions_for
from tao_ray.network.data import DataSource
from tao_ray.network.keys import SpecError
from tao_ray.network.network import Network
from tao_ray.network.objective import Metric
from tao_ray.network.package import Action, InputDecl, ModelPackage
from tao_ray.network.resolve import resolve_action, resolve_evaluation, resolve_network
from tao_ray.network.schema import (
    ActionSchema,
    PackageError,
    SchemaParameter,
    parse_math_cond,
    parse_schema,
)
from tao_ray.network.spec import Adjustment, Spec, build_spec
from tao_ray.network.wiring import Download

__all__ = [
    "Action",
    "ActionSchema",
    "Adjustment",
    "Conventions",
    "DataSource",
    "Download",
    "InputDecl",
    "Metric",
    "ModelPackage",
    "Network",
    "PackageError",
    "SchemaParameter",
    "Spec",
    "SpecError",
    "build_spec",
    "conventions_for",
    "load_package",
    "parse_math_cond",
    "parse_schema",
    "resolve_action",
    "resolve_evaluation",
    "resolve_network",
]
