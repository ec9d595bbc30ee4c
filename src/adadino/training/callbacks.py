"""What happens after each epoch: checkpoints, the run folder's files, a line on the terminal."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from adadino import checkpoint as checkpoints
from adadino.data.folder import PairFolder, change_of
from adadino.files import write_atomic
from adadino.reporting import pictures
from adadino.reporting.tables import csv_text
from adadino.training.folder import BEST, CURVES, HISTORY, LAST, PICTURES, read_state
from adadino.training.step import ShardedBackbone
from adadino.training.task import ChangeTask, to_float

SECONDS_BETWEEN_CURVES = 10


class AtomicCheckpointIO(TorchCheckpointIO):
    """Checkpoints that appear whole or not at all, and are read without running code."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        """Write to a file beside it, then rename that."""

        def write(part: Path) -> None:
            try:
                torch.save(checkpoint, part)
            except RuntimeError as error:
                # torch's own writer reports a full disk as an enforcement failure.
                raise OSError("it was cut short, the disk may be full") from error

        write_atomic(path, write)

    def load_checkpoint(
        self, path: Any, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """See `read_state`."""
        return read_state(path)


class Bar(pl.callbacks.RichProgressBar):
    """Lightning's bar, counting epochs from one, as every other line does."""

    def _get_train_description(self, current_epoch: int) -> str:
        return f"epoch {current_epoch + 1}/{self.trainer.max_epochs}"


class Keeper(pl.Callback):
    """After each epoch: best/ and last.ckpt, the history and its curves, a picture."""

    def __init__(self, folder: Path, validation: PairFolder | None, *, shown: int = 6) -> None:
        self.folder, self.validation = folder, validation
        self.examples = [] if validation is None else choose_examples(validation, shown)
        self.drawn = -math.inf
        """When the curves were drawn last: drawing takes longer than an epoch of a small run."""

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        """Write what a validated epoch left; `last.ckpt` comes last and marks it as finished."""
        assert isinstance(task, ChangeTask)
        settings = task.config.train
        if not settings.validate and (task.current_epoch + 1) % settings.validate_every == 0:
            task.check_finite()
            task.add_row({})
        if not finished(task):
            return
        row = task.history[-1]
        better = row.get(task.chosen_by, -math.inf) > task.best_f1
        if better:
            task.best_f1 = row[task.chosen_by]
        name = f"epoch-{int(row['epoch']):03d}.png"
        sharded = isinstance(trainer.strategy, ShardedBackbone)
        if sharded and not trainer.is_global_zero and self.examples:
            self.picture(task, None)  # the first rank's blocks wait for this one's shares
        if trainer.is_global_zero:
            if better:
                shown = [k for k in ("f1", "iou", "miou", "sek", "fscd") if k in row]
                extra = {"epoch": row["epoch"], "validation": {k: row[k] for k in shown}}
                extra |= task.kept_facts
                # A backbone that no file holds would be lost with the process.
                unnamed = task.model.config.backbone.weights is None
                checkpoints.save(task.model, self.folder / BEST, with_backbone=unnamed, extra=extra)
            write_atomic(self.folder / HISTORY, csv_text(list(task.history[0]), task.history))
            is_last = row["epoch"] == trainer.max_epochs
            if is_last or time.monotonic() - self.drawn > SECONDS_BETWEEN_CURVES:
                pictures.training_curves(task.history, self.folder / CURVES)
                self.drawn = time.monotonic()
            if self.examples:
                self.picture(task, self.folder / PICTURES / name)
        trainer.save_checkpoint(self.folder / LAST)

    @torch.no_grad()
    def picture(self, task: ChangeTask, path: Path | None) -> None:
        """Before, after, probability and errors of a few validation pairs; None writes nothing."""
        model = task.model
        training = model.training
        model.eval()
        rows = []
        assert self.validation is not None
        for index in self.examples:
            before, after, mask, _ = self.validation[index]
            pair = [to_float(image[None].to(task.device)) for image in (before, after)]
            # This hook runs outside Lightning's precision context, which the model needs.
            with task.trainer.precision_plugin.forward_context():
                probability = model(*pair).logits.float().softmax(1)[0, 1].cpu().numpy()
            truth = change_of(mask[None])[0].numpy().astype(bool)
            grey = np.repeat((255 * probability).astype(np.uint8)[..., None], 3, axis=2)
            errors = pictures.error_map(probability >= 0.5, truth)
            images = [
                pictures.shown(image.numpy(), model.config.bands.rgb) for image in (before, after)
            ]
            rows.append([*images, grey, errors])
        model.train(training)
        if path is not None:
            pictures.contact_sheet(rows, path)


class Reporter(pl.Callback):
    """One plain line for each epoch on standard error; on a terminal the bar moves below them."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.epochs = 0

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        """Start the clock; what ran before the first epoch is not part of the pace."""
        self.started = time.monotonic()

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        """Report loss, F1, pace and the time that is left."""
        assert isinstance(task, ChangeTask)
        self.epochs += 1
        if not (trainer.is_global_zero and finished(task)):
            return
        row, seconds = task.history[-1], time.monotonic() - self.started
        total = int(trainer.max_epochs or 0)
        left = seconds / self.epochs * (total - row["epoch"])
        scores = f"F1 {100 * row['f1']:.2f}  IoU {100 * row['iou']:.2f}  " if "f1" in row else ""
        if "fscd" in row:
            scores += f"F_scd {100 * row['fscd']:.2f}  SeK {100 * row['sek']:.2f}  "
        print(
            f"epoch {row['epoch']:.0f}/{total}  loss {row['loss_total']:.4f}  {scores}"
            f"{seconds / self.epochs:.1f} s/epoch  {_duration(left)} left",
            file=sys.stderr,
            flush=True,
        )


def finished(task: ChangeTask) -> bool:
    """Whether the epoch that ends now is one that is kept: its row is in the history."""
    return bool(task.history) and task.history[-1]["epoch"] == task.current_epoch + 1


def choose_examples(dataset: PairFolder, count: int) -> list[int]:
    """Indices spread over a split, those with change preferred: an empty mask shows little."""
    spread = np.unique(np.linspace(0, len(dataset) - 1, 4 * count).astype(int)).tolist()
    changed = [index for index in spread if bool(change_of(dataset[index][2][None]).any())]
    chosen = (changed + [index for index in spread if index not in changed])[:count]
    return sorted(chosen)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
