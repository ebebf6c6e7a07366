"""The sections `model` and `data`: which network is tuned, on what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationInfo,
)

from tao_ray.config.base import (
    Count,
    Finding,
    Flag,
    LocalPath,
    Location,
    Section,
    Value,
    Words,
    in_directory,
)
from tao_ray.config.source import typed


def _shape(value: Any) -> str | None:
    """Which branch of a union `value` is for: told by its shape, so errors name one branch."""
    for kind, name in ((str, "<text>"), (list, "<list>"), (dict, "<mapping>")):
        if isinstance(value, kind):
            return name
    return None


BaseSpec = Annotated[
    Annotated[LocalPath, Tag("<text>")] | Annotated[dict[str, Value], Tag("<mapping>")],
    Discriminator(_shape),
    Words("the path of a spec file, or a mapping"),
]
Locations = Annotated[
    Annotated[Location, Tag("<text>")] | Annotated[list[Location], Tag("<list>")],
    Discriminator(_shape),
    Words("a path or URI, or a list of them"),
]


class ModelConfig(Section):
    """The network: a model package and an action of it, or a bare command."""

    package: str | None = Field(
        default=None,
        description="Model package: its directory, or a name (directory, alias or network_arch) "
        "looked up in the bank that `TAO_SKILL_BANK_PATH` names.",
    )
    network: str | None = Field(
        default=None, description="Without a package: the network's name, such as `dino`."
    )
    action: str = Field(default="train", description="The action whose parameters are searched.")
    command: str | None = Field(
        default=None,
        description="Without a package: shell command of the action. `{config_path}` in it becomes "
        "the path of the spec.",
    )
    config_format: Literal["yaml", "toml"] | None = Field(
        default=None, description="Without a package: format of the spec file. Default: yaml."
    )
    spec: BaseSpec | None = Field(
        default=None,
        description="Base spec, as a file or in place. Default: the package's template for the "
        "action. Required without a package.",
    )
    image: str | None = Field(
        default=None,
        description="Container image, or a key of the skill bank's `versions.yaml` such as "
        "`images.tao_toolkit.pyt`. Default: the package's for the action and backend.",
    )
    backend: str | None = Field(
        default=None, description="Backend of a package that has several, such as cosmos-reason."
    )
    overrides: dict[str, Value] = Field(
        default_factory=dict,
        description="Spec keys to set, dotted (`train.optim.lr`) or nested. A key that neither the "
        "schema nor the template knows is an error. Values are taken as they are: no path in them "
        "is resolved.",
    )
    checkpoint: Location | None = Field(
        default=None, description="Pretrained weights to start from, for packages that take them."
    )
    teacher: Location | None = Field(
        default=None, description="Teacher checkpoint, for actions that distill."
    )
    key: SecretStr | None = Field(
        default=None,
        exclude=True,
        description="Encryption key of the checkpoints. Write `${env:NAME}`: only that reference "
        "is ever written to the run directory.",
    )

    def rules(self) -> Iterator[Finding]:
        if self.package is not None:
            for key in ("network", "command", "config_format"):
                if getattr(self, key) is not None:
                    yield Finding((key,), "is only for a model without a package", "leave it out")
            return
        if self.network is None and self.command is None:
            yield Finding(
                ("package",),
                "required: a model package",
                "or, without a package, give network, command, spec and search.parameters",
            )
            return
        for key in ("network", "command", "spec"):
            if getattr(self, key) is None:
                yield Finding((key,), "required for a model without a package")
        if self.command is not None and "{config_path}" not in self.command:
            yield Finding(("command",), "must contain {config_path}, the place of the spec's path")
        if self.backend is not None:
            yield Finding(("backend",), "is only for a model package", "leave it out")


def _data_value(value: Any, info: ValidationInfo) -> Any:
    """Text is a path, as in the named sources; inside a mapping only what starts like one is."""

    def nested(item: Any) -> Any:
        if isinstance(item, str):
            return in_directory(item, info) if item.startswith(("./", "../", "~/")) else item
        if isinstance(item, dict):
            return {key: nested(inner) for key, inner in item.items()}
        return [nested(inner) for inner in item] if isinstance(item, list) else item

    if isinstance(value, str):
        # A number that came from the environment is one; every other text is a path.
        read = typed(value)
        return in_directory(str(value), info) if isinstance(read, str) else read
    if isinstance(value, list):
        return [_data_value(item, info) for item in value]
    return nested(typed(value))


class DataConfig(Section):
    """The data. Named sources are put where the package's own rules want them.

    Besides the keys below, any exact spec key (one with a dot) may be given, such as
    `dataset.train_dataset.images_dir: s3://bucket/images`; it wins over the named sources. Text
    there is a path or URI. Inside a nested mapping only text that starts with `./`, `../` or `~/`
    is taken for a path.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"additionalProperties": False, "patternProperties": {r"\.": {}}},
    )
    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_data_value)]] = Field(init=False)

    train: Locations | None = Field(default=None, description="Training data set(s).")
    train_wds: Locations | None = Field(
        default=None, description="Training data as WebDataset shards."
    )
    eval: Locations | None = Field(default=None, description="Validation data set.")
    inference: Locations | None = Field(
        default=None, description="Data for inference and for packages' test sets."
    )
    calibration: Locations | None = Field(
        default=None, description="Data to calibrate quantization on."
    )
    format: str | None = Field(
        default=None, description="Format of the data. Default: the package's `data_format`."
    )
    annotations: dict[str, str] = Field(
        default_factory=dict,
        description="What placeholders in the package's paths stand for, such as "
        "`{train_dataset_annotation: train.json}`.",
    )
    train_sample_count: Count | None = Field(
        default=None,
        description="Number of training samples. Batch sizes that would leave no full step are "
        "capped to it.",
    )
    on_instance: Flag = Field(
        default=False,
        description="You vouch for it that local paths exist on the machines where jobs run. "
        "Without it, rented machines refuse them.",
    )

    @property
    def spec_keys(self) -> Mapping[str, Any]:
        """The exact spec keys that were given: dotted key -> value."""
        return self.model_extra or {}

    def rules(self) -> Iterator[Finding]:
        for key in self.spec_keys:
            if "." not in key:
                yield Finding((key,), unknown=True)
