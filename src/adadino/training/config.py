"""One training run as frozen dataclasses; the defaults are the paper's (Sec. 4.1 and App. A)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from adadino import schema
from adadino.config import PRESETS, Config, preset
from adadino.data.augment import AugmentConfig
from adadino.errors import ConfigError
from adadino.peers import FREE, find_peer, takes
from adadino.source import read_settings


@dataclass(frozen=True)
class DataConfig:
    """Which pairs, and how they are read."""

    root: tuple[str, ...] = ()
    """Folder with train/ and val/, each with A, B and label (`adadino prepare` makes it); several
    folders are one dataset."""
    tile: int | None = None
    """Cut larger images into tiles of this side on the fly; None takes them as they are."""
    roam: bool = False
    """Draw every training tile's place anew each epoch, up to half a tile from its own."""
    take: int | None = schema.added(None)
    """Train on so many tiles, drawn with train.seed; more of them include the fewer."""
    fold: str | None = schema.added(None)
    """`2/5` validates on the second of five parts of the scenes in train/ and val/, and trains on
    the other four."""
    resolution: tuple[float, float] | None = schema.added(None)
    """Finest and coarsest pixels of the training images, in metres on the ground, for the model's
    card. Left out, it is read from what `prepare`, `synthesize` and `judge` wrote, or from
    GeoTIFFs."""
    workers: int = 2
    """Reading processes."""
    cache: bool = False
    """Hold the decoded pairs in memory."""

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise ConfigError(f"data.workers is {self.workers}, must be at least 0.")
        if self.tile is not None and self.tile < 1:
            raise ConfigError(f"data.tile is {self.tile}, must be at least 1 pixel.")
        if self.take is not None and self.take < 1:
            raise ConfigError(f"data.take is {self.take}, must be at least 1 tile.")
        if self.resolution is not None:
            low, high = self.resolution
            if not 0 < low <= high < math.inf:
                raise ConfigError(
                    f"data.resolution is {low:g}, {high:g}; give the finest and the coarsest "
                    "pixels in metres, as in 0.5,2."
                )
        if self.fold is not None:
            part, _, parts = self.fold.partition("/")
            if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts) >= 2):
                raise ConfigError(f"data.fold is {self.fold!r}, must be like 2/5: part and parts.")
        if self.roam and self.tile is None:
            raise ConfigError("data.roam moves tiles, and there are none; set data.tile.")

    @property
    def name(self) -> str:
        """The folders, for messages."""
        return ", ".join(self.root)


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation, schedules, precision."""

    epochs: int = 100
    """Passes over the training pairs."""
    batch: int = 8
    """Pairs per step and device. The paper's chunk selection is per device, too."""
    accumulate: int = 2
    """Steps whose gradients are summed: 8 x 2 = 16 pairs per update."""
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    """adamw is the paper's; the others are for peers that were published with them."""
    momentum: float = 0.0
    """Momentum of sgd."""
    lr: float = 5e-4
    """Learning rate at the start."""
    weight_decay: float = 5e-4
    """Weight decay of the optimiser."""
    min_lr: float = 1e-7
    """Learning rate below which it never falls; the cosine ends there."""
    schedule: Literal["epoch", "step"] = "epoch"
    """Whether the learning rate moves once an epoch or once an update."""
    decay: Literal["cosine", "linear", "exponential"] = schema.added("cosine")
    """How the learning rate falls. cosine is the paper's; the others are for peers."""
    decay_factor: float = schema.added(0.95)
    """Of exponential: what the learning rate is multiplied with."""
    decay_every: int = schema.added(1)
    """Of exponential: epochs between two of these steps."""
    validate: bool = schema.added(True)
    """Score the validation split and keep the best epoch. `false` needs no such split: every
    training pair may be used, nothing chooses an epoch, and only `final/` is kept."""
    validate_every: int = 1
    """Epochs between validations; checkpoints are written after them."""
    bscs_warmup: int = 3
    """Epochs with all FFN chunks, before the policy chooses."""
    bscs_anneal: int = schema.added(0)
    """Epochs behind the warm-up over which the executed chunks fall from all to k. The paper drops
    to k at once."""
    teacher: str | None = schema.added(None)
    """Beyond the paper: a trained model whose dense prediction and tapped features this one is
    taught to give, beside the labels."""
    part: Literal["all", "classes"] = schema.added("all")
    """`classes` trains the head of the classes alone: the map of change keeps every bit."""
    adapter_lr: float = schema.added(1.0)
    """Learning rate of CGLA's modules, as a multiple of lr."""
    lambda_start: float = 5
    """Epochs before CGLA's auxiliary loss sets in."""
    lambda_ramp: float = 10
    """Epochs over which the weight of that loss grows."""
    lambda_max: float = 0.01
    """Final weight of that loss."""
    dice: Literal["micro", "foreground"] = "micro"
    """micro is the paper's; foreground counts the change class alone, which is rare."""
    precision: Literal["32", "bf16"] = "32"
    """32 is the paper's. bf16 holds the frozen weights in bf16 and runs the rest in autocast."""
    compile: bool = False
    """Compile the model: slower to start, faster after."""
    cuda_graph: bool = False
    """Record the step as a CUDA graph: for small models, whose kernels the host cannot issue as
    fast as they run. One device, without `checkpointing`."""
    checkpointing: bool = False
    """Recompute the blocks in the backward pass: less memory, a third more time."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """On several devices: all weights on each, or the frozen backbone in shares."""
    devices: int = 1
    """Processes on each node, one for each GPU (or CPU process). A run may go on with another
    number: it then accumulates more or fewer steps, so that an update sees as many pairs."""
    nodes: int = 1
    """Machines that train together."""
    seed: int = 0
    """What all draws follow from: initial weights, order, augmentation, dropout."""
    wandb: bool = False
    """Log to Weights & Biases too."""

    @property
    def pairs_per_update(self) -> int:
        """Pairs of one update, on all devices together."""
        return self.batch * self.accumulate * self.devices * self.nodes

    @property
    def summary(self) -> str:
        """The recipe in words, for cards."""
        devices = self.devices * self.nodes
        on = "" if devices == 1 else f" on each of {devices} devices"
        return (
            f"{self.epochs} epochs, {self.pairs_per_update} pairs per update ({self.batch} at a "
            f"time{on}, {self.accumulate} times), {self.optimizer} with learning rate {self.lr:g}, "
            f"precision {self.precision}, seed {self.seed}"
        )

    def __post_init__(self) -> None:
        for name in (
            "epochs",
            "batch",
            "accumulate",
            "validate_every",
            "devices",
            "nodes",
            "decay_every",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name} is {getattr(self, name)}, must be at least 1.")
        for name in (
            "weight_decay",
            "bscs_warmup",
            "bscs_anneal",
            "lambda_start",
            "lambda_ramp",
            "lambda_max",
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"train.{name} is {getattr(self, name)}, must be at least 0.")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"train.seed is {self.seed}, must be in 0..{2**32 - 1}.")
        if not 0 < self.decay_factor <= 1:
            raise ConfigError(f"train.decay_factor is {self.decay_factor}, must be in 0..1.")
        if self.decay == "exponential" and self.schedule == "step":
            raise ConfigError("train.decay=exponential counts epochs; set train.schedule=epoch.")
        for name in ("lr", "adapter_lr"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"train.{name} is {getattr(self, name)}, must be above 0.")
        if self.epochs % self.validate_every:
            raise ConfigError(
                f"train.validate_every is {self.validate_every}, must divide train.epochs = "
                f"{self.epochs}: a run ends with a validation."
            )
        if self.cuda_graph and self.checkpointing:
            raise ConfigError(
                "train.cuda_graph does not go with train.checkpointing; set one of them to false."
            )
        if self.cuda_graph and self.devices * self.nodes > 1:
            raise ConfigError("train.cuda_graph works on one device; set train.devices=1.")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"train.momentum is {self.momentum}, must be in 0..1, below 1.")
        if self.momentum and self.optimizer != "sgd":
            raise ConfigError(
                f"train.momentum is {self.momentum}, but {self.optimizer} has betas of its own; "
                "leave it out, or set train.optimizer=sgd."
            )
        if not 0 <= self.min_lr <= self.lr:
            raise ConfigError(f"train.min_lr {self.min_lr} must lie between 0 and lr {self.lr}.")


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run."""

    preset: str = "vitl16"
    """The preset that `model` refines."""
    output: str = "runs/run"
    """The run's folder."""
    init: str | None = schema.added(None)
    """A trained model to start from: a checkpoint folder, a hub id, or tiny, the bundled one. Its
    own settings take the place of the preset's."""
    model: Config = field(default_factory=Config)
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.model.peer in FREE:
            raise ConfigError(
                f"{self.model.peer} has nothing to train: predict with it by its name, --model "
                f"{self.model.peer}."
            )
        for name in ("compile", "checkpointing", "teacher", "bscs_anneal", "adapter_lr"):
            used = getattr(self.train, name) != getattr(TrainConfig, name)
            if self.model.peer is not None and used:
                raise ConfigError(
                    f"train.{name} is for AdaDINO, not for {self.model.peer}; leave it out."
                )


def load_run(
    path: Path | str | None, overrides: Sequence[str] = (), *, published: bool = False
) -> RunConfig:
    """Read a run's YAML, lay dotted overrides over it and the preset under its model.

    Args:
        path: The YAML file; None starts from the defaults.
        overrides: Items such as `model.bscs.k=6`.
        published: Whether a peer's published recipe takes the place of our defaults. The loss and
            the augmentation stay ours.
    """
    file = schema.read_yaml(path) if path is not None else {}
    data = schema.override(file, overrides)
    if data.get("init") is None:
        name = data.get("preset", RunConfig.preset)
        if not isinstance(name, str) or name not in PRESETS:
            preset(name if isinstance(name, str) else schema.say(name))  # raises, naming them
        base = schema.to_dict(PRESETS[name])
    else:
        data, base = _trained_base(data, file, overrides)
    given = data.get("model", {})
    if not isinstance(given, Mapping):
        raise ConfigError(f"model must be a mapping of settings, not {schema.say(given)}.")
    merged = _merge(base, given)
    if (
        published
        and isinstance(merged["peer"], str)
        and (recipe := find_peer(merged["peer"]).recipe)
    ):
        told = data.get("train") or {}
        data = {**data, "train": {**recipe.settings(told), **told}}
    config = schema.build(RunConfig, {**data, "model": merged})
    if (peer := config.model.peer) is None:
        return config
    written = schema.to_dict(config.model)
    named = [
        item.partition("=")[0].removeprefix("model.")
        for item in overrides
        if item.startswith("model.")
    ]
    ignored = [setting for setting in differences(written, base) if not takes(peer, setting)]
    meant = (file.get("model") or {}).get("peer") == peer
    for setting in named + (ignored if meant else []):
        if not takes(peer, setting):
            raise ConfigError(f"model.{setting} has no effect on {peer}: leave it out.")
    # The file is another model's recipe: settings of parts that the peer lacks are left out.
    for setting in ignored:
        _put(written, base, setting)
    return schema.build(RunConfig, {**data, "model": written})


def _trained_base(
    data: dict[str, Any], file: Mapping[str, Any], overrides: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run's settings, and those of the trained model that it starts from."""
    init = data["init"]
    if not isinstance(init, str):
        raise ConfigError(f"init must be a model's folder or name, not {schema.say(init)}.")
    if any(item.startswith("preset=") for item in overrides):
        raise ConfigError(
            f"--preset has no effect with --init {init}, which has its own sizes; leave it out."
        )
    base = schema.to_dict(schema.build(Config, read_settings(init)["model"], "model"))
    if file.get("init") != init:  # the file is another model's recipe: only its training counts
        data = {**data, "model": schema.override({}, overrides).get("model", {})}
    name = base["backbone"]["name"]
    data["preset"] = name if name in PRESETS else RunConfig.preset
    if (
        isinstance(data["model"], Mapping)
        and data["model"].get("peer", base["peer"]) != base["peer"]
    ):
        raise ConfigError(f"{init} is {base['peer'] or 'AdaDINO'}: leave --model out.")
    return data, base


def differences(one: Mapping[str, Any], two: Mapping[str, Any], path: str = "") -> list[str]:
    """Dotted names of the settings in which two configurations of one type differ."""
    names = []
    for key, ours in one.items():
        if isinstance(ours, Mapping):
            names += differences(ours, two[key], f"{path}{key}.")
        elif ours != two[key]:
            names.append(path + key)
    return names


def _put(target: dict[str, Any], source: Mapping[str, Any], name: str) -> None:
    """Copy the setting of a dotted name."""
    *way, last = name.split(".")
    for key in way:
        target, source = target[key], source[key]
    target[last] = source[last]


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(below, value) if both else value  # type: ignore[arg-type]
    return merged
