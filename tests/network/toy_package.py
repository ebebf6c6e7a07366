"""A small model package on disk, to be bent by each test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tao_ray.config import DataConfig, ModelConfig, ObjectiveConfig
from tao_ray.network import Network, resolve_network

COMMAND = "toy train -e {config_path}"

INFO: dict[str, Any] = {
    "network_arch": "toy",
    "automl_enabled": True,
    "container_image": "registry/toy:1",
    "data_format": "coco",
    "gpu_spec_key": "train.num_gpus",
    "actions": {
        "train": {
            "command": COMMAND,
            "config_format": "yaml",
            "metric": "val_loss",
            "metric_direction": "minimize",
            "inputs": {
                "dataset.train_dir": {"type": "folder"},
                "dataset.val_dir": {"type": "folder"},
                "train.pretrained_model_path": {"type": "file", "optional": True},
                "train.resume_training_checkpoint_path": {"type": "file", "optional": True},
            },
            "outputs": {"results_dir": {"type": "folder"}},
        },
        "evaluate": {
            "command": "toy evaluate -e {config_path}",
            "metric": "test_acc",
            "metric_direction": "maximize",
            "inputs": {"evaluate.checkpoint": {"type": "file"}},
            "outputs": {"results_dir": {"type": "folder"}},
        },
    },
    "data_sources": {
        "train": {
            "dataset.train_dir": {"source": "train_datasets", "path": "images"},
            "dataset.val_dir": {"source": "eval_dataset", "path": ""},
        }
    },
    "spec_params": {
        "train": {
            "encryption_key": "key",
            "results_dir": "output_dir",
            "train.pretrained_model_path": "ptm_if_no_resume_model",
            "train.resume_training_checkpoint_path": "resume_model",
        },
        "evaluate": {"results_dir": "output_dir", "evaluate.checkpoint": "parent_model"},
    },
    "spec_shorthand_keys": {"learning_rate": "train.optim.lr"},
}

TEMPLATE: dict[str, Any] = {
    "encryption_key": "",
    "results_dir": "",
    "model": {"width": 64, "layers": [{"units": 8}, {"units": 4}]},
    "dataset": {"train_dir": "", "val_dir": "", "batch_size": 16, "extra": {}},
    "train": {
        "num_epochs": 10,
        "num_gpus": 1,
        "gpu_ids": [0],
        "validation_interval": 1,
        "checkpoint_interval": 4,
        "resume_training_checkpoint_path": "",
        "pretrained_model_path": "",
        "weights": [1.0, 10.0],
        "optim": {"lr": 1e-3},
    },
}


def leaf(kind: str, default: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "default": default, **more}


def block(**properties: Any) -> dict[str, Any]:
    return {"type": "collection", "properties": properties}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "automl_default_parameters": ["train.optim.lr"],
    "automl_disabled_parameters": ["train", "model.width"],
    "default": TEMPLATE,
    "properties": {
        "model": block(width=leaf("int", 64, automl_enabled=False)),
        "dataset": block(batch_size=leaf("int", 16, automl_enabled=True, minimum=1)),
        "train": block(
            optim=block(
                lr=leaf("float", 1e-3, automl_enabled=True, minimum=0.0, maximum=float("inf")),
                momentum=leaf("float", 0.9),
            ),
        ),
        "evaluate": block(threshold=leaf("float", 0.5, automl_enabled=True)),
    },
}


class Toy:
    """The package's files as they would be on disk; `write` puts them there."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.info: dict[str, Any] = json.loads(json.dumps(INFO))
        self.schemas: dict[str, Any] = {"train": json.loads(json.dumps(SCHEMA))}
        self.templates: dict[str, Any] = {
            "train": json.loads(json.dumps(TEMPLATE)),
            "evaluate": {
                "results_dir": "",
                "model": {"width": 64},
                "evaluate": {"checkpoint": "???", "batch_size": 4},
            },
        }

    @property
    def train(self) -> dict[str, Any]:
        return self.info["actions"]["train"]

    def write(self) -> Path:
        for name in ("references", "schemas"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self._put("references/skill_info.yaml", self.info, yaml.safe_dump)
        for action, schema in self.schemas.items():
            self._put(f"schemas/{action}.schema.json", schema, json.dumps)
        for action, template in self.templates.items():
            self._put(f"references/spec_template_{action}.yaml", template, yaml.safe_dump)
        return self.directory

    def _put(self, name: str, content: Any, dump: Callable[[Any], str]) -> None:
        text = content if isinstance(content, str) else dump(content)
        (self.directory / name).write_text(text, "utf-8")

    def resolve(
        self,
        *,
        data: dict[str, Any] | None = None,
        objective: dict[str, Any] | None = None,
        **model: Any,
    ) -> Network:
        return resolve_network(*self.configs(data, objective, **model), Path("/"))

    def configs(
        self,
        data: dict[str, Any] | None = None,
        objective: dict[str, Any] | None = None,
        **model: Any,
    ) -> tuple[ModelConfig, DataConfig, ObjectiveConfig]:
        return (
            ModelConfig(package=str(self.write()), **model),
            DataConfig(
                **({"train": "s3://b/train", "eval": "s3://b/val"} if data is None else data)
            ),
            ObjectiveConfig(**(objective or {})),
        )
