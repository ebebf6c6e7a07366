"""Facts about TAO's networks that no model package states, in one table.

Objective and direction are NVIDIA's recommendation per network; where the recommended metric only
comes from an evaluate job, the row also names the metric of the training itself that stands in
for it (`proxy_metric`). Spec keys are those of the networks' own schemas. A key is used only if
the package at hand knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tao_ray.errors import TaoRayError

MAX = "maximize"
MIN = "minimize"


@dataclass(frozen=True)
class Conventions:
    """What one action of one network does by convention. The defaults are TAO's common form.

    metric, direction: the recommended objective; None where NVIDIA names none.
    metric_source: where it is reported: "status" (status.json of this action), "evaluate" (only
        status.json of an evaluate job), "file" (a JSON file the package names) or "unspecified".
    proxy_metric, proxy_direction: what the training reports instead, if source is "evaluate".
    metric_cases: (spec key, value, metric, direction): another objective when the key is set so.
    metric_note: what else must hold for the metric to appear.
    evaluate_metric, evaluate_direction: what an evaluate job reports.
    epoch_keys: all set to the number of epochs. step_cap_keys: limits in steps that may end a
        training before its epochs do.
    resume_key: takes the checkpoint to resume; None if the network cannot. resume_extra: further
        keys to set then. resume_env: environment it needs. resume_extra_epochs: epochs to add to
        num_epochs when resuming.
    start_key: takes weights only (optimizer and schedule start afresh).
    checkpoint_key: takes the weights in actions that do not train.
    checkpoint_pattern: regular expression of a resumable checkpoint's path with ``{epoch}`` in
        it; its group 1, if any, is the step. checkpoint_first: the number the first epoch's file
        carries. weights_pattern: the same for what evaluate and export take, where it differs.
        best_checkpoint: file name of the best one where the network keeps that by itself.
    template_required: a spec cannot be built from the schema's defaults alone.
    dataset_convert_required: the action of that name must have run on the data before.
    batch_multiple_key: the batch size must be a multiple of this key's value.
    writes_status: it writes status.json.
    slow_start: a job loads the weights of a model of billions of parameters before it trains.
    """

    network_arch: str
    metric: str | None = None
    direction: str | None = None
    metric_source: str | None = None
    proxy_metric: str | None = None
    proxy_direction: str | None = None
    metric_cases: tuple[tuple[str, Any, str, str], ...] = ()
    metric_note: str | None = None
    evaluate_metric: str | None = None
    evaluate_direction: str | None = None
    epoch_keys: tuple[str, ...] = ("train.num_epochs",)
    step_cap_keys: tuple[str, ...] = ()
    resume_key: str | None = "train.resume_training_checkpoint_path"
    resume_extra: Mapping[str, Any] = field(default_factory=dict)
    resume_env: Mapping[str, str] = field(
        default_factory=lambda: {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    )
    resume_extra_epochs: int = 0
    start_key: str | None = "train.pretrained_model_path"
    checkpoint_key: str | None = None
    checkpoint_pattern: str = r"model_epoch_{epoch:03d}(?:_step_(\d+))?\.pth"
    checkpoint_first: int = 0
    weights_pattern: str | None = None
    best_checkpoint: str | None = None
    template_required: bool = False
    dataset_convert_required: bool = False
    num_gpus_key: str | None = "train.num_gpus"
    gpu_ids_key: str | None = "train.gpu_ids"
    validation_interval_key: str | None = "train.validation_interval"
    checkpoint_interval_key: str | None = "train.checkpoint_interval"
    checkpoint_unit_key: str | None = "train.checkpoint_interval_unit"
    batch_size_keys: tuple[str, ...] = ("dataset.batch_size",)
    batch_multiple_key: str | None = None
    writes_status: bool = True
    slow_start: bool = False
    actions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)


COMPRESSING_ACTIONS = frozenset({"prune", "quantize"})
"""Actions that make a trained model smaller: of the spec they use their own block, whatever else
the package offers for search."""
TRAINING_ACTIONS = frozenset({"train", "retrain", "distill", "segment_train"})


def conventions_for(network_arch: str, action: str, package_name: str | None = None) -> Conventions:
    """The conventions of `action`; TAO's common form for a network the table does not hold.

    package_name: the package's directory name, the only unique key; needed for a network_arch
        that two packages share.

    Raises:
        TaoRayError: `network_arch` is shared and `package_name` does not decide.
    """
    row = _row(network_arch, package_name)
    if action in TRAINING_ACTIONS:
        return replace(row, **row.actions.get(action, {}))
    evaluates = action.endswith("evaluate")
    block = "evaluate" if evaluates else action
    fields: dict[str, Any] = {
        "metric": row.evaluate_metric if evaluates else None,
        "direction": row.evaluate_direction if evaluates else None,
        "metric_source": "status" if evaluates and row.evaluate_metric else None,
        "proxy_metric": None,
        "proxy_direction": None,
        "metric_cases": (),
        "epoch_keys": (),
        "step_cap_keys": (),
        "resume_key": None,
        "start_key": None,
        "checkpoint_key": f"{block}.checkpoint",
        "dataset_convert_required": row.dataset_convert_required and evaluates,
        "num_gpus_key": f"{block}.num_gpus",
        "gpu_ids_key": f"{block}.gpu_ids",
        "validation_interval_key": None,
        "checkpoint_interval_key": None,
        "checkpoint_unit_key": None,
        "batch_size_keys": (),
        "batch_multiple_key": None,
    }
    return replace(row, **{**fields, **row.actions.get(action, {})})


def _row(network_arch: str, package_name: str | None) -> Conventions:
    if package_name in TABLE:
        return TABLE[package_name]
    wanted = _normal(network_arch)
    names = [n for n, row in TABLE.items() if _normal(row.network_arch) == wanted]
    if len(names) > 1:
        raise TaoRayError(
            f"{network_arch!r} is the network of {len(names)} packages: {', '.join(names)}",
            where="model.network",
            remedy="use model.package with one of them, as their objectives differ",
        )
    return TABLE[names[0]] if names else Conventions(network_arch)


def _normal(name: str) -> str:
    return name.casefold().replace("-", "_")


_DETR: dict[str, Any] = {
    "metric": "test_mAP50",
    "direction": MAX,
    "metric_source": "evaluate",
    "proxy_metric": "val_mAP50",
    "proxy_direction": MAX,
    "evaluate_metric": "test_mAP50",
    "evaluate_direction": MAX,
}
_TESSERACT: dict[str, Any] = {
    "metric_source": "file",
    "epoch_keys": ("train.num_epochs", "train.epochs"),
    "resume_key": None,
    "validation_interval_key": None,
    "num_gpus_key": None,
    "gpu_ids_key": None,
    "batch_size_keys": ("train.batch_size",),
    "writes_status": False,
}
_DEPTH: dict[str, Any] = {"batch_size_keys": ("dataset.train_dataset.batch_size",)}
_TRAIN_BLOCK: dict[str, Any] = {"batch_size_keys": ("dataset.train.batch_size",)}


def _status(metric: str, direction: str, evaluate: str | None = None) -> dict[str, Any]:
    return {
        "metric": metric,
        "direction": direction,
        "metric_source": "status",
        "evaluate_metric": evaluate,
        "evaluate_direction": direction if evaluate else None,
    }


def _evaluate(metric: str, direction: str, proxy: str | None, of: str | None) -> dict[str, Any]:
    return {
        "metric": metric,
        "direction": direction,
        "metric_source": "evaluate",
        "proxy_metric": proxy,
        "proxy_direction": of,
        "evaluate_metric": metric,
        "evaluate_direction": direction,
    }


TABLE: dict[str, Conventions] = {
    "tao-finetune-clip": Conventions(
        "clip",
        **_status("val/t2i_mAP", MAX, "test/t2i_mAP"),
        **_TRAIN_BLOCK,
        template_required=True,
    ),
    "tao-finetune-cosmos-embed": Conventions(
        "cosmos-embed",
        epoch_keys=("train.max_iter",),
        resume_key=None,
        start_key=None,
        slow_start=True,
    ),
    "tao-finetune-cosmos-reason": Conventions(
        "cosmos-reason",
        **_evaluate("accuracy", MAX, "val/avg_loss", MIN),
        epoch_keys=("train.epoch",),
        resume_key="train.resume",
        start_key="policy.model_name_or_path",
        checkpoint_pattern=r"safetensors/epoch_{epoch}(?:_step_(\d+))?/",
        checkpoint_first=1,
        template_required=True,
        num_gpus_key="policy.parallelism.dp_shard_size",
        gpu_ids_key=None,
        validation_interval_key="validation.freq_in_epoch",
        checkpoint_interval_key="train.ckpt.save_freq_in_epoch",
        checkpoint_unit_key=None,
        batch_size_keys=("train.train_batch_per_replica",),
        batch_multiple_key="train.train_policy.mini_batch",
        slow_start=True,
        actions={a: {"num_gpus_key": "num_gpus"} for a in ("evaluate", "inference")},
    ),
    "tao-finetune-nv-tesseract-ad-diffusion": Conventions(
        "nv_tesseract_ad_diffusion",
        metric="val_loss",
        direction=MIN,
        start_key=None,
        **_TESSERACT,
    ),
    "tao-finetune-nv-tesseract-forecasting": Conventions(
        "nv_tesseract_forecasting",
        metric="val_mse",
        direction=MIN,
        start_key="model.ckpt_init",
        **_TESSERACT,
        actions={"inference_hpo": {"checkpoint_key": "inference.ckpt"}},
    ),
    "tao-finetune-video-clip": Conventions("video-clip", resume_key=None, start_key=None),
    "tao-train-action-recognition": Conventions(
        "action_recognition",
        **_evaluate("accuracy", MAX, "val_loss", MIN),
        start_key=None,  # one key per input stream (rgb, optical flow, joint)
    ),
    "tao-train-bevfusion": Conventions(
        "bevfusion",
        metric="AP11",
        direction=MAX,
        metric_source="unspecified",
        resume_extra={"train.resume": True},
        start_key="train.pretrained_checkpoint",
        checkpoint_pattern=r"epoch_{epoch}\.pth",
        checkpoint_first=1,
        checkpoint_unit_key=None,
        batch_size_keys=("dataset.train_dataset.batch_size",),
        dataset_convert_required=True,
    ),
    "tao-train-centerpose": Conventions(
        "centerpose", **_evaluate("test_3DIoU", MAX, "val_3DIoU", MAX)
    ),
    "tao-train-codetr": Conventions(
        "codetr", metric="mAP50", direction=MAX, metric_source="unspecified"
    ),
    "tao-train-deformable-detr": Conventions("deformable_detr", **_DETR),
    "tao-train-depth-anything-v2": Conventions(
        "depth_net_mono", **_status("val/d1", MAX), **_DEPTH
    ),
    "tao-train-dino": Conventions("dino", **_DETR),
    "tao-train-dinov3": Conventions(
        "dinov3", weights_pattern=r"teacher_epoch_{epoch:03d}(?:_step_(\d+))?\.pth"
    ),
    "tao-train-fast-foundation-stereo": Conventions(
        "depth_net_stereo", **_status("val/loss", MIN, "epe"), **_DEPTH
    ),
    "tao-train-foundation-stereo": Conventions(
        "depth_net_stereo", **_evaluate("val/epe", MIN, "val/loss", MIN), **_DEPTH
    ),
    "tao-train-grounding-dino": Conventions("grounding_dino", **_DETR),
    "tao-train-image-classification": Conventions(
        "classification_pyt", **_status("val_acc_1", MAX, "test_acc_1")
    ),
    "tao-train-mask-auto-encoder": Conventions(
        "mae",
        **_status("ACC_all", MAX),
        metric_cases=(("train.stage", "pretrain", "train_loss", MIN),),
    ),
    "tao-train-mask-auto-label": Conventions(
        "mal",
        **_evaluate("mIoU", MAX, None, None),
        metric_note="mIoU needs dataset.load_mask: true",
        batch_size_keys=("train.batch_size",),
    ),
    "tao-train-mask-grounding-dino": Conventions("mask_grounding_dino", **_status("val_loss", MIN)),
    "tao-train-mask2former": Conventions(
        "mask2former", **_status("mIoU", MAX, "mIoU"), **_TRAIN_BLOCK
    ),
    "tao-train-metric-learning-recognition": Conventions(
        "ml_recog",
        **_status("val Precision at Rank 1", MAX, "test Precision at Rank 1"),
        start_key="model.pretrained_model_path",
        batch_size_keys=("train.batch_size",),
    ),
    "tao-train-nvdinov2": Conventions(
        "nvdinov2",
        **_status("train_loss", MIN),
        weights_pattern=r"student_epoch_{epoch:03d}(?:_step_(\d+))?\.pth",
    ),
    "tao-train-nvpanoptix3d": Conventions(
        "nvpanoptix3d",
        **_status("PRQ", MAX),
        **_TRAIN_BLOCK,
        step_cap_keys=("train.optim.max_steps",),
        resume_extra_epochs=1,
        start_key=None,  # separate keys for its 2D and 3D stages
    ),
    "tao-train-ocdnet": Conventions(
        "ocdnet",
        **{**_status("train_loss", MIN, "hmean"), "evaluate_direction": MAX},
        start_key="model.pretrained_model_path",
        best_checkpoint="model_best.pth",
        batch_size_keys=("dataset.train_dataset.loader.batch_size",),
    ),
    "tao-train-ocrnet": Conventions(
        "ocrnet",
        **_status("val_acc", MAX, "test_acc"),
        best_checkpoint="best_accuracy.pth",
        dataset_convert_required=True,
    ),
    "tao-train-oneformer": Conventions(
        "oneformer",
        **_status("mIoU", MAX, "test_mIoU"),
        **_TRAIN_BLOCK,
        step_cap_keys=("train.optim.max_iter",),
        start_key="train.pretrained_model",
    ),
    "tao-train-optical-inspection": Conventions(
        "optical_inspection", **_status("val_acc", MAX, "test_acc")
    ),
    "tao-train-pointpillars": Conventions(
        "pointpillars",
        **_status("loss", MIN),
        start_key="model.pretrained_model_path",
        checkpoint_pattern=r"checkpoint_epoch_{epoch}\.pth",
        checkpoint_first=1,
        batch_size_keys=("train.batch_size",),
        dataset_convert_required=True,
    ),
    "tao-train-pose-classification": Conventions(
        "pose_classification",
        **{**_status("val_loss", MIN, "accuracy"), "evaluate_direction": MAX},
        start_key="model.pretrained_model_path",
    ),
    "tao-train-reid": Conventions(
        "re_identification",
        **_status("cmc_rank_1", MAX, "mAP"),
        start_key="model.pretrained_model_path",
        batch_multiple_key="dataset.num_instances",  # batches hold whole identities
    ),
    "tao-train-rtdetr": Conventions("rtdetr", **_status("val_mAP50", MAX, "test_mAP50")),
    "tao-train-segformer": Conventions(
        "segformer",
        **_status("val_miou", MAX, "test_miou"),
        batch_size_keys=("dataset.segment.batch_size",),
    ),
    "tao-train-sparse4d": Conventions(
        "sparse4d", **_status("val_mAP", MAX), dataset_convert_required=True
    ),
    "tao-train-visual-changenet": Conventions(
        "visual-changenet",
        **{**_status("val_loss", MIN, "test_acc"), "evaluate_direction": MAX},
        batch_size_keys=("dataset.classify.batch_size",),
        actions={
            "segment_train": {"batch_size_keys": ("dataset.segment.batch_size",)},
            "segment_evaluate": {"metric": None, "direction": None, "metric_source": None},
        },
    ),
    # The stand-in network: what its package states holds, and its one-shot actions write one file.
    "digits_mlp": Conventions(
        "digits_mlp",
        actions={
            "prune": {"checkpoint_pattern": r"model_pruned\.pth"},
            "quantize": {"checkpoint_pattern": r"quantized_model\.pth"},
        },
    ),
}
"""Package directory name -> conventions of its train action."""
