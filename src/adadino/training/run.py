"""A training run from its configuration to its folder, resumable at any moment.

    config.yaml  environment.json  history.csv  curves.png  pictures/  last.ckpt  best/  final/
    card.md

`best/` holds the trained tensors of the epoch with the highest validation F1, `final/` those of the
last epoch, which nothing chose, and `last.ckpt` all that is needed to go on. The test split is
never read.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch

from adadino.checkpoint import save
from adadino.data.folder import PairFolder, warn_of_leakage
from adadino.errors import AdaDINOError, ConfigError, DevicesWarning, TrainingError, WriteError
from adadino.files import locked, write_atomic
from adadino.peers import find_peer
from adadino.reporting.card import run_card
from adadino.training.callbacks import AtomicCheckpointIO, Bar, Keeper, Reporter
from adadino.training.config import RunConfig, TrainConfig
from adadino.training.data import PairData, open_splits, scaled
from adadino.training.domain import domain_of
from adadino.training.folder import (
    CARD,
    ENVIRONMENT,
    FINAL,
    LAST,
    can_go_on,
    checkpoint_of,
    open_run,
    record_environment,
    same_update,
)
from adadino.training.start import make_model
from adadino.training.step import choose_strategy
from adadino.training.task import ChangeTask


class RunResult(NamedTuple):
    """How a run ended."""

    folder: Path
    epochs: int
    best_f1: float | None
    """The highest validation F1, with classes F_scd; None without validation."""
    resumed: bool
    history: list[dict[str, float]]
    seconds: float
    """Seconds of training, with validation and the parts before an interruption."""


def train(
    config: RunConfig, *, overwrite: bool = False, quiet: bool = False, device: str = "auto"
) -> RunResult:
    """Train, or go on training, until the last epoch.

    Args:
        config: The run.
        overwrite: Start anew where the folder holds another run.
        quiet: Print no progress.
        device: "cpu" leaves a GPU alone; otherwise it is taken if there is one.

    Raises:
        TrainingError: The folder holds another run, memory or disk ran out, or the loss became NaN.
        ConfigError: A setting that this machine cannot follow.
    """
    folder = Path(config.output)
    peer = config.model.peer
    if peer is not None and not find_peer(peer).trained:
        raise ConfigError(
            f"{peer} has nothing to train: adadino evaluate and predict take it as it is "
            f"(adadino info {peer} says from which weights)."
        )
    if config.train.compile and config.train.precision == "bf16" and not _on_gpu(device):
        # Inductor's code for a CPU (torch 2.13) reads past a masked row; without bf16 it is right.
        raise ConfigError(
            "train.compile with train.precision=bf16 needs a GPU: on a CPU what PyTorch compiles "
            "gives NaN. Leave train.compile out."
        )
    if config.train.part == "classes" and not config.model.classes.names:
        raise ConfigError(
            "train.part=classes trains the head of the classes, and the model has none; add "
            "--classes, or leave the setting out."
        )
    given = config
    if not overwrite:
        config = same_update(folder, config)
    config = scaled(config)
    sets = open_splits(config)
    trainer = _trainer(config, sets.get("val"), folder, quiet=quiet, device=device)
    # Lightning starts this command again for every further device; one of them writes and warns.
    first = trainer.is_global_zero
    if first:
        warn_of_leakage({split: pairs.pairs for split, pairs in sets.items()})
    if first and config.train.accumulate != given.train.accumulate:
        _warn_of_devices(config.train, instead_of=given.train.accumulate)
    # Built before a new run's folder is made: weights that cannot be read leave no folder behind.
    model = None if can_go_on(folder) else make_model(config, warn=first)
    with locked(folder, "training run") if first else contextlib.nullcontext():
        if first:
            resume = open_run(folder, config, overwrite=overwrite)
            record_environment(folder, sets)
        else:
            resume = None if overwrite else checkpoint_of(folder)
        task = ChangeTask(make_model(config, warn=first) if model is None else model, config)
        if first:
            resolution = config.data.resolution
            task.model.domain = domain_of(sets["train"], resolution=resolution)
        _fit(trainer, task, sets, folder, resume=resume)
        epochs = int(task.history[-1]["epoch"])
        if first:
            unnamed = task.model.config.backbone.weights is None
            extra = {"epoch": epochs, **task.kept_facts}
            save(task.model, folder / FINAL, with_backbone=unnamed, extra=extra)
            _write_card(task, folder)
    resumed = resume is not None
    best = task.best_f1 if config.train.validate else None
    return RunResult(folder, epochs, best, resumed, task.history, task.seconds)


def _warn_of_devices(settings: TrainConfig, *, instead_of: int) -> None:
    warnings.warn(
        f"the run goes on with {settings.devices * settings.nodes} devices: it accumulates "
        f"{settings.accumulate} steps instead of {instead_of}, so that an update still sees "
        f"{settings.pairs_per_update} pairs.",
        DevicesWarning,
        stacklevel=3,
    )


def _write_card(task: ChangeTask, folder: Path) -> None:
    config, peer = task.config.train, task.config.model.peer
    card = run_card(
        task.model,
        task.history,
        json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8")),
        recipe=config.summary,
        batch=config.batch,
        original=None if peer is None else find_peer(peer),
    )
    write_atomic(folder / CARD, card)


def _on_gpu(device: str) -> bool:
    return torch.cuda.is_available() and device != "cpu"


def _fit(
    trainer: pl.Trainer,
    task: ChangeTask,
    sets: dict[str, PairFolder],
    folder: Path,
    *,
    resume: Path | None,
) -> None:
    """Run Lightning's loop; whatever ends it early becomes one sentence."""
    settings = task.config.train

    def safe() -> str:
        if checkpoint_of(folder) is None:
            return "No epoch was finished yet: the same command starts anew."
        return f"Finished epochs are safe in {folder / LAST}: the same command goes on from there."

    try:
        with warnings.catch_warnings():
            # Hints about how to use Lightning are for us, not for who uses us.
            warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")
            warnings.filterwarnings("ignore", "Grad strides do not match")  # DDP copies: correct
            trainer.fit(task, datamodule=PairData(sets, task.config), ckpt_path=resume)
    except torch.OutOfMemoryError as error:
        raise TrainingError(
            f"out of GPU memory with train.batch={settings.batch}; halve it and double "
            "train.accumulate, or set train.precision=bf16 or train.checkpointing=true, in a new "
            "output folder."
        ) from error
    except WriteError as error:
        raise TrainingError(f"{error} {safe()}") from error
    except OSError as error:
        raise TrainingError(f"{error}. {safe()}") from error
    except AdaDINOError as error:
        # From a reading process an error arrives wrapped in that process's traceback.
        name = f"adadino.errors.{type(error).__name__}: "
        raise type(error)(str(error.args[0]).strip().rpartition(name)[2]) from error
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        if "signal: Terminated" in str(error):  # SIGTERM to the whole group: someone wants an end
            raise KeyboardInterrupt from error
        raise TrainingError(
            "a reading process died, probably for lack of (shared) memory; lower data.workers, 0 "
            f"reads without one. {safe()}"
        ) from error
    except SystemExit as error:
        # Lightning's answer to Ctrl-C, after which it leaves the signal ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise KeyboardInterrupt from error


def _trainer(
    config: RunConfig, validation: PairFolder | None, folder: Path, *, quiet: bool, device: str
) -> pl.Trainer:
    settings = config.train
    terminal = sys.stderr.isatty() and not quiet
    callbacks: list[pl.Callback] = [Keeper(folder, validation)]
    if terminal:
        callbacks.append(Bar(console_kwargs={"stderr": True}))
    if not quiet:
        callbacks.append(Reporter())
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return pl.Trainer(
        accelerator="gpu" if _on_gpu(device) else "cpu",
        devices=settings.devices,
        num_nodes=settings.nodes,
        strategy=choose_strategy(config),
        precision="bf16-mixed" if settings.precision == "bf16" else "32-true",
        max_epochs=settings.epochs,
        check_val_every_n_epoch=settings.validate_every,
        accumulate_grad_batches=settings.accumulate,
        use_distributed_sampler=False,  # ours pads nothing and repeats nothing
        num_sanity_val_steps=0,
        limit_val_batches=1.0 if settings.validate else 0,
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
            raise TrainingError(
                "train.wandb needs wandb, which is not installed: pip install wandb"
            ) from error
    return loggers or False
