"""A training run from its configuration to its folder, resumable at any moment.

    config.yaml  environment.json  history.csv  curves.png  pictures/  last.ckpt  best/  card.md

`best/` holds the trained tensors of the epoch with the highest validation F1, `last.ckpt` all that is
needed to go on. The test split is never looked at.
"""

from __future__ import annotations

import json
import logging
import platform
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch

import adadino
from adadino import schema
from adadino.data.folder import PairFolder, fingerprint
from adadino.errors import BackboneWarning, ConfigError, TrainingError
from adadino.files import locked, write_atomic
from adadino.model.checkpoint import build
from adadino.training.callbacks import LAST, AtomicCheckpointIO, Keeper, Reporter
from adadino.training.card import model_card
from adadino.training.config import RunConfig
from adadino.training.data import train_loader, val_loader
from adadino.training.task import ChangeTask

# What may differ between the start of a run and its continuation: where and how, not what.
_FREE = {"train": ("devices", "nodes", "wandb"), "data": ("workers", "cache", "root")}


class RunResult(NamedTuple):
    """How a run ended."""

    folder: Path
    epochs: int
    best_f1: float
    resumed: bool
    history: list[dict[str, float]]


def train(config: RunConfig, *, overwrite: bool = False, quiet: bool = False) -> RunResult:
    """Train, or go on training, until the last epoch.

    Args:
        config: The run.
        overwrite: Start anew where the folder holds another run.
        quiet: No progress.

    Raises:
        TrainingError: The folder holds another run, memory or disk ran out, or the loss became NaN.
    """
    folder = Path(config.output)
    with locked(folder, "training run"):
        resume = _prepare_folder(folder, config, overwrite=overwrite)
        pl.seed_everything(config.train.seed, verbose=False)  # the initial weights
        model = build(config.model)
        if model.config.backbone.fingerprint is None and not model.config.backbone.trainable:
            warnings.warn(
                "the frozen backbone is random: set model.backbone.weights to DINOv3 weights "
                "(README, 'Weights'). What is learned on it says nothing about the method.",
                BackboneWarning,
                stacklevel=2,
            )
        sets = {
            split: PairFolder(
                config.data.root, split, tile=config.data.tile, cache=config.data.cache
            )
            for split in ("train", "val")
        }
        _check_tiles(sets["train"], config)
        _describe(folder, config, sets)
        task = ChangeTask(_ready(model, config), config)
        _fit(task, sets, folder, resume=resume, quiet=quiet)
        _finish(folder, task, config)
        return RunResult(folder, len(task.history), task.best_f1, resume is not None, task.history)


def _prepare_folder(folder: Path, config: RunConfig, *, overwrite: bool) -> Path | None:
    """Return the checkpoint to go on from, or None for a new run."""
    saved, last = folder / "config.yaml", folder / LAST
    if saved.exists() and not overwrite:
        before, now = _comparable(schema.read_yaml(saved)), _comparable(schema.to_dict(config))
        if before != now:
            name = _first_difference(before, now)
            raise TrainingError(
                f"{folder} holds a run with another {name}; give another output, or --overwrite."
            )
        return last if last.exists() else None
    if overwrite:
        last.unlink(missing_ok=True)
    write_atomic(saved, schema.write_yaml(config))
    return None


def _comparable(settings: dict[str, Any]) -> dict[str, Any]:
    settings = json.loads(json.dumps(settings))
    settings.pop("output", None)
    for group, names in _FREE.items():
        for name in names:
            settings.get(group, {}).pop(name, None)
    return settings


def _first_difference(a: Any, b: Any, path: str = "") -> str:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            if a.get(key) != b.get(key):
                return _first_difference(a.get(key), b.get(key), f"{path}.{key}" if path else key)
    return f"{path} ({a!r}, not {b!r})"


def _check_tiles(dataset: PairFolder, config: RunConfig) -> None:
    height, width = dataset[0][2].shape
    stride = config.model.stride
    if height % stride or width % stride:
        raise ConfigError(
            f"training tiles of {height} x {width} are no multiple of {stride} pixels (one token); "
            "set data.tile."
        )


def _ready(model: Any, config: RunConfig) -> Any:
    """Precision and memory settings of the recipe."""
    if config.train.precision == "bf16" and not config.model.backbone.trainable:
        # Half the memory, and no cast of 300M weights in every step. They receive no gradient, so
        # nothing is lost that float32 would have kept.
        model.encoder.backbone.to(torch.bfloat16)
    model.encoder.checkpointing = config.train.checkpointing
    return model


def _fit(
    task: ChangeTask, sets: dict[str, PairFolder], folder: Path, *, resume: Path | None, quiet: bool
) -> None:
    config = task.config
    settings = config.train
    trainer = _trainer(task, sets["val"], folder, quiet=quiet)
    place = {"rank": trainer.global_rank, "world": trainer.world_size}
    loaders = (
        train_loader(sets["train"], config.data, batch=settings.batch, seed=settings.seed, **place),
        val_loader(sets["val"], config.data, batch=settings.batch, **place),
    )
    try:
        trainer.fit(task, *loaders, ckpt_path=resume)
    except torch.OutOfMemoryError as error:
        raise TrainingError(
            f"out of GPU memory with train.batch={settings.batch}; halve it and double "
            "train.accumulate, or set train.precision=bf16 or train.checkpointing=true. Finished "
            f"epochs are safe in {folder}."
        ) from error
    except OSError as error:
        raise TrainingError(f"{error}. Finished epochs are safe in {folder / LAST}.") from error
    if trainer.interrupted:
        raise KeyboardInterrupt


def _trainer(task: ChangeTask, validation: PairFolder, folder: Path, *, quiet: bool) -> pl.Trainer:
    settings = task.config.train
    terminal = sys.stderr.isatty() and not quiet
    callbacks: list[pl.Callback] = [Keeper(folder, validation)]
    if terminal:
        callbacks.append(pl.callbacks.RichProgressBar())
    elif not quiet:
        callbacks.append(Reporter())
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    several = settings.devices * settings.nodes > 1
    return pl.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=settings.devices,
        num_nodes=settings.nodes,
        # Policies rest during the warm-up, priors have no gradient path: some are always unused.
        strategy="ddp_find_unused_parameters_true" if several else "auto",
        precision="bf16-mixed" if settings.precision == "bf16" else "32-true",
        max_epochs=settings.epochs,
        accumulate_grad_batches=settings.accumulate,
        use_distributed_sampler=False,  # ours pads nothing and repeats nothing
        num_sanity_val_steps=0,
        enable_checkpointing=False,  # Keeper writes them
        enable_progress_bar=terminal,
        enable_model_summary=False,
        logger=_loggers(folder, settings.wandb),
        callbacks=callbacks,
        plugins=[AtomicCheckpointIO()],
        default_root_dir=folder,
    )


def _loggers(folder: Path, wandb: bool) -> Any:
    """TensorBoard where it is installed, W&B by request; the CSV is written in any case."""
    loggers: list[Any] = []
    try:
        import tensorboard  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401

        loggers.append(pl.loggers.TensorBoardLogger(folder, name="", version="tensorboard"))
    except ImportError:
        pass
    if wandb:
        try:
            loggers.append(pl.loggers.WandbLogger(save_dir=folder, name=folder.name))
        except ImportError as error:
            raise TrainingError("train.wandb needs `pip install wandb`.") from error
    return loggers or False


def _describe(folder: Path, config: RunConfig, sets: dict[str, PairFolder]) -> None:
    """Write down what a figure of this run depends on besides the configuration."""
    cuda = torch.cuda.is_available()
    data = {
        split: {
            "pairs": len(pairs.pairs),
            "tiles": len(pairs),
            "fingerprint": fingerprint(pairs.pairs),
        }
        for split, pairs in sets.items()
    }
    versions = {
        "adadino": adadino.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "pytorch-lightning": version("pytorch-lightning"),
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or "CPU",
    }
    text = json.dumps({"versions": versions, "data": data}, indent=2)
    write_atomic(folder / "environment.json", text + "\n")


def _finish(folder: Path, task: ChangeTask, config: RunConfig) -> None:
    if not task.trainer.is_global_zero:
        return
    environment = json.loads((folder / "environment.json").read_text())
    write_atomic(folder / "card.md", model_card(task.model, task.history, environment, config))
