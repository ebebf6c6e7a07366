"""GPU machines rented from Brev through its command line."""

from tao_ray.platforms.brev.cli import BrevCli
from tao_ray.platforms.brev.errors import (
    BrevAuthError,
    BrevCapacityError,
    BrevError,
    BrevMissingError,
    BrevNameTakenError,
    BrevNetworkError,
    BrevNotFoundError,
    BrevOutputError,
    BrevProvisionError,
    BrevRefusedError,
    BrevServerError,
    BrevTimeoutError,
    BrevUnsupportedError,
)
from tao_ray.platforms.brev.names import PREFIX, is_ours, machine_name, run_prefix
from tao_ray.platforms.brev.provider import BrevProvider
from tao_ray.platforms.brev.records import Instance, InstanceType, Organization
from tao_ray.platforms.brev.steps import Progress, Times
from tao_ray.platforms.brev.types import NoTypeError, TypeRequest, choose_types

__all__ = [
    "PREFIX",
    "BrevAuthError",
    "BrevCapacityError",
    "BrevCli",
    "BrevError",
    "BrevMissingError",
    "BrevNameTakenError",
    "BrevNetworkError",
    "BrevNotFoundError",
    "BrevOutputError",
    "BrevProvider",
    "BrevProvisionError",
    "BrevRefusedError",
    "BrevServerError",
    "BrevTimeoutError",
    "BrevUnsupportedError",
    "Instance",
    "InstanceType",
    "NoTypeError",
    "Organization",
    "Progress",
    "Times",
    "TypeRequest",
    "choose_types",
    "is_ours",
    "machine_name",
    "run_prefix",
]
