"""The Lightning task: augment on the device, forward, loss of App. A, one confusion matrix.

Every draw of the augmentation comes from a generator seeded with (seed, epoch, step, rank), so a step
is the same whether the run was interrupted before it or not.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from adadino.data.augment import Augment
from adadino.errors import TrainingError
from adadino.losses import LossParts, lambda_cgla, total_loss
from adadino.metrics import Confusion, confusion_counts
from adadino.model.adadino import AdaDINO
from adadino.training.config import RunConfig
from adadino.training.data import Batch

_FROZEN = "model.encoder.backbone."


class ChangeTask(pl.LightningModule):
    """Trains the parts of AdaDINO that are not frozen."""

    def __init__(self, model: AdaDINO, config: RunConfig) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.augment = Augment(config.augment)
        # In a list, so that the compiled module is not a second set of parameters.
        self.network = [torch.compile(model) if config.train.compile else model]
        self.losses: list[LossParts] = []
        self.counts = torch.zeros(4, dtype=torch.int64)
        self.history: list[dict[str, float]] = []
        """One row for each finished epoch; travels in the checkpoint."""
        self.best_f1 = -1.0

    def training_step(self, batch: Batch, index: int) -> Tensor:
        """One step; the loss stays on the device."""
        before, after, mask, _ = batch
        settings = self.config.train
        generator = seeded(settings.seed, self.current_epoch, index, self.global_rank)
        before, after, mask = self.augment(before, after, mask, generator)
        warming_up = self.current_epoch < settings.bscs_warmup
        k = self.model.config.bscs.chunks if warming_up else self.model.config.bscs.k
        output = self.network[0](before, after, k=k)
        epoch = self.current_epoch + index / self.steps_per_epoch
        parts = total_loss(
            output.logits,
            output.pyramid,
            None if output.responses is None else output.responses.delta,
            mask,
            lambda_cgla=lambda_cgla(
                epoch,
                start=settings.lambda_start,
                ramp=settings.lambda_ramp,
                maximum=settings.lambda_max,
            ),
            dice=settings.dice,
        )
        self.losses.append(LossParts(*(p.detach() for p in parts)))
        if len(self.losses) % 50 == 0:
            self.check_finite()
        return parts.total

    def check_finite(self) -> None:
        """Stop on a loss that is no number, before it can reach a checkpoint."""
        if self.losses and not bool(torch.stack([p.total for p in self.losses]).isfinite().all()):
            raise TrainingError(
                f"the loss became NaN or infinite in epoch {self.current_epoch + 1}. The last good "
                "checkpoint is untouched; lower train.lr, or train with train.precision=32, in a "
                "new output folder."
            )

    def on_train_epoch_start(self) -> None:
        """Start the epoch's means."""
        self.losses = []

    def on_train_epoch_end(self) -> None:
        """Refuse to finish an epoch whose loss went wrong."""
        self.check_finite()

    def validation_step(self, batch: Batch, index: int) -> None:
        """Count one batch."""
        before, after, mask, _ = batch
        output = self.network[0](to_float(before), to_float(after))
        self.counts = self.counts.to(mask.device) + confusion_counts(output.logits.argmax(1), mask)

    def on_validation_epoch_start(self) -> None:
        """Start an empty matrix."""
        self.counts = torch.zeros(4, dtype=torch.int64, device=self.device)

    def on_validation_epoch_end(self) -> None:
        """Sum the matrices of all ranks and add a row to the history."""
        counts = self.trainer.strategy.reduce(self.counts, reduce_op="sum")
        confusion = Confusion.from_counts(counts)
        if self.trainer.sanity_checking or not self.losses:
            self.log("val_f1", confusion.f1)
            return
        means = {
            f"loss_{name}": float(torch.stack([getattr(p, name) for p in self.losses]).mean())
            for name in LossParts._fields
        }
        row = {"epoch": self.current_epoch + 1, "lr": self.learning_rate, **means}
        row |= confusion.as_dict()
        self.history = [*self.history, row]
        self.log("val_f1", confusion.f1, prog_bar=True)
        self.log_dict({f"val/{k}": float(v) for k, v in confusion.as_dict().items()})
        self.log_dict({f"train/{k}": v for k, v in means.items()})

    @property
    def learning_rate(self) -> float:
        """The rate of the step just made."""
        return float(self.trainer.optimizers[0].param_groups[0]["lr"])

    @property
    def steps_per_epoch(self) -> int:
        """Batches of one rank."""
        return max(1, int(self.trainer.num_training_batches))

    def configure_optimizers(self) -> Any:
        """AdamW over what is trainable, cosine from lr to min_lr by epoch or by step."""
        settings = self.config.train
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(
            parameters,
            lr=settings.lr,
            betas=(0.9, 0.999),
            weight_decay=settings.weight_decay,
            fused=parameters[0].is_cuda,
        )
        by_step = settings.schedule == "step"
        total = int(self.trainer.estimated_stepping_batches) if by_step else settings.epochs
        low = settings.min_lr / settings.lr

        def cosine(step: int) -> float:
            # The last period runs at the minimum: 0 -> 1, total - 1 -> low.
            position = min(step / max(total - 1, 1), 1.0)
            return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * position))

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, cosine)
        interval = "step" if by_step else "epoch"
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": interval},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leave the frozen backbone out: it is named in the configuration and never changes."""
        if not self.model.config.backbone.trainable:
            state = checkpoint["state_dict"]
            checkpoint["state_dict"] = {k: v for k, v in state.items() if not k.startswith(_FROZEN)}
        checkpoint["history"] = self.history
        checkpoint["best_f1"] = self.best_f1

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the history back, and the backbone from the model at hand."""
        self.history = list(checkpoint["history"])
        self.best_f1 = float(checkpoint["best_f1"])
        for name, tensor in self.state_dict().items():
            checkpoint["state_dict"].setdefault(name, tensor)


def seeded(*numbers: int) -> torch.Generator:
    """A generator whose seed depends on all the numbers and mixes them well."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def to_float(image: Tensor) -> Tensor:
    """uint8 (B, 3, H, W) to float32 in [0, 1], on the image's device."""
    return image.float() / 255
