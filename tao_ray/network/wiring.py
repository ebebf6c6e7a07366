"""``spec_params``: which spec keys the run fills in, and with what.

The values of a package's ``spec_params`` are names of functions, links to weights, or constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tao_ray.network.conventions import TRAINING_ACTIONS, Conventions
from tao_ray.network.keys import KnownKeys, is_foreign
from tao_ray.network.package import Action

_CHECKPOINT = {"parent_model", "parent_model_folder", "parent_model_or_ptm", "pruned_model"}
_START = {"ptm", "ptm_if_no_resume_model", "resume_model_or_ptm"}
_NOT_WIRED = {"resume_model_bool"}  # bevfusion's switch: Conventions.resume_extra
_FILES = {
    "create_onnx_file": "model.onnx",
    "create_engine_file": "model.engine",
    "create_pth_file": "model.pth",
    "create_cal_cache": "cal.bin",
    "create_evaluate_cmc_plot_reid": "cmc_curve.png",
    "create_evaluate_matches_plot_reid": "sampled_matches.png",
    "create_inference_result_file_reid": "inference.json",
    "create_inference_result_file_mal": "inference.json",
    "create_inference_result_file_pose": "results.txt",
}
_FILES_BY_KEY = {
    "onnx_file": "model.onnx",
    "trt_engine": "model.engine",
    "pruned_file": "model.pth",
}
_ENGINE_ENDINGS = (".engine", ".trt", ".plan")
_WEIGHT_ENDINGS = (".pth", ".pt", ".tlt", ".ckpt", ".safetensors", ".hdf5", ".onnx")


@dataclass(frozen=True)
class Download:
    """Weights a spec expects at `destination` on the machine, to be fetched from `link`."""

    key: str
    link: str
    destination: str


@dataclass(frozen=True)
class Wiring:
    """The spec keys that are filled in when a job's spec is built.

    output_dirs: get the job's results_dir. output_files: key -> path below it.
    checkpoint_keys: take the weights the action works on; start_keys: take the weights a training
        starts from, unless it resumes; resume_key: takes the checkpoint to resume.
    folder_keys: those of them that take the folder of a checkpoint.
    secret_keys: take the encryption key. constants: key -> value. downloads: weights to fetch.
    """

    output_dirs: tuple[str, ...] = ()
    output_files: Mapping[str, str] = field(default_factory=dict)
    checkpoint_keys: tuple[str, ...] = ()
    start_keys: tuple[str, ...] = ()
    resume_key: str | None = None
    folder_keys: frozenset[str] = frozenset()
    secret_keys: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    downloads: tuple[Download, ...] = ()

    @property
    def filled_later(self) -> frozenset[str]:
        """Keys that need no value before a job's spec is built."""
        return frozenset({*self.output_dirs, *self.output_files})

    def checkpoint_values(self, path: str) -> dict[str, str]:
        """What `checkpoint_keys` become for the checkpoint or TensorRT engine at `path`."""
        engine = path.endswith(_ENGINE_ENDINGS)
        keys = [k for k in self.checkpoint_keys if k.endswith("trt_engine") == engine]
        return {k: self._value(k, path) for k in keys}

    def start_values(self, path: str) -> dict[str, str]:
        """What `start_keys` become for the weights at `path`."""
        return {k: self._value(k, path) for k in self.start_keys}

    def _value(self, key: str, path: str) -> str:
        is_file = path.endswith(_WEIGHT_ENDINGS) and "/" in path
        return path.rsplit("/", 1)[0] if key in self.folder_keys and is_file else path


def wire(action: Action, conventions: Conventions, known: KnownKeys) -> Wiring:
    """Read the spec_params of `action`; conventions say what the package leaves out."""
    by_function: dict[str, list[str]] = {}
    constants: dict[str, Any] = {}
    downloads = []
    files: dict[str, str] = {}
    for key, value in action.spec_params.items():
        if isinstance(value, Mapping):
            downloads.append(Download(key, value["link"], value["destination_path"]))
        elif not isinstance(value, str):
            constants[key] = value
        elif value.startswith("create_"):
            files[key] = _FILES.get(value) or _file_name(key)
        elif value in _CHECKPOINT | _START | {"output_dir", "key", "resume_model"}:
            by_function.setdefault(value, []).append(key)
        elif value not in _NOT_WIRED:
            constants[key] = value
    for key, kind in action.outputs.items():
        if kind != "folder" and not is_foreign(key, action):
            files.setdefault(key, _file_name(key))
    folders = [k for k, kind in action.outputs.items() if kind == "folder"]
    checkpoints = [k for f in sorted(_CHECKPOINT) for k in by_function.get(f, ())]
    resume = by_function.get("resume_model", [conventions.resume_key])[0]
    return Wiring(
        output_dirs=tuple(
            dict.fromkeys([*by_function.get("output_dir", ()), *folders]) or ["results_dir"]
        ),
        output_files={k: f"{action.subcommand}/{name}" for k, name in files.items()},
        checkpoint_keys=tuple(checkpoints or _conventional(conventions.checkpoint_key, known)),
        start_keys=_start_keys(action, by_function, conventions, known),
        resume_key=resume if resume and resume in known else None,
        folder_keys=frozenset(by_function.get("parent_model_folder", ())),
        secret_keys=tuple(by_function.get("key", ())),
        constants=constants,
        downloads=tuple(downloads),
    )


def _start_keys(
    action: Action,
    by_function: Mapping[str, list[str]],
    conventions: Conventions,
    known: KnownKeys,
) -> tuple[str, ...]:
    """Where whole-model weights go: the convention's key, else the only key the package wires.

    A package that wires a backbone's key beside the model's must not get both set to one file.
    """
    if action.name not in TRAINING_ACTIONS:
        return ()
    if conventions.start_key and conventions.start_key in known:
        return (conventions.start_key,)
    wired = [k for f in sorted(_START) for k in by_function.get(f, ())]
    return tuple(wired) if len(wired) == 1 else ()


def _conventional(key: str | None, known: KnownKeys) -> list[str]:
    return [key] if key and key in known else []


def _file_name(key: str) -> str:
    last = key.rsplit(".", 1)[-1]
    return _FILES_BY_KEY.get(last, last)


def is_teacher(key: str) -> bool:
    """Whether a checkpoint's spec key takes a teacher (``distill.pretrained_teacher_...``)."""
    return "teacher" in key
