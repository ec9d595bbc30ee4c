"""The Lightning task: augment on the device, forward, loss of App. A, one confusion matrix.

Every draw of a step, the augmentation's and a dropout's, comes from a generator seeded with (seed,
epoch, step, rank), so a step is the same whether the run was interrupted before it or not.
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from torch import Tensor

from adadino.checkpoint import load, trained_tensors
from adadino.data.augment import Augment
from adadino.data.folder import change_of
from adadino.errors import ConfigError, EmptyWarning, TrainingError
from adadino.losses import LossParts, weigh
from adadino.metrics import Confusion, confusion_counts
from adadino.model.adadino import AdaDINO
from adadino.model.detector import Detector
from adadino.semantic.choice import from_to
from adadino.semantic.scores import Matrix, SemanticScores, semantic_counts
from adadino.training.config import RunConfig
from adadino.training.data import Batch
from adadino.training.folder import checkpoint_of
from adadino.training.schedule import executed_chunks, lambda_cgla, learning_rate
from adadino.training.start import hold_all_but_classes
from adadino.training.step import (
    ShardedBackbone,
    Step,
    StepLoss,
    keep_gradients,
    record,
    set_up,
)


class ChangeTask(pl.LightningModule):
    """Trains the parts of a model that are not frozen."""

    def __init__(self, model: Detector, config: RunConfig) -> None:
        super().__init__()
        self.model, self.config = model, config
        bands = config.model.bands
        self.augment = Augment(config.augment, bands=len(bands.names) or None)
        self.steps: dict[int | None, Step] = {}
        """The step of each budget k, None for a peer. A dict does not register the model again."""
        self.losses: list[LossParts] = []
        self.schedule: dict[str, float] = {}
        """Where the schedules stood at the last step."""
        self.counts = torch.zeros(4, dtype=torch.int64)
        self.class_counts: Tensor | None = None
        """Of both dates' classes, as `semantic_counts` gives them; None for a model without."""
        self.validated: tuple[int, Tensor] | None = None
        """This rank's batches of the validation so far, and an image of the last."""
        self.history: list[dict[str, float]] = []
        """One row for each finished epoch; travels in the checkpoint."""
        self.best_f1 = -1.0
        """The best validation F1; of a model with classes, F_scd (`chosen_by`)."""
        self.seconds = 0.0
        """Seconds that this run had been training at its last checkpoint."""
        self.began = time.monotonic()

    @property
    def chosen_by(self) -> str:
        """The validation score that chooses the best epoch, as the field chooses it."""
        return "fscd" if self.model.config.classes.names else "f1"

    @property
    def kept_facts(self) -> dict[str, Any]:
        """What a checkpoint says of the model that it started from, where that still holds."""
        domain = self.model.domain
        if self.config.train.part != "classes" or domain is None:
            return {}
        return {"domain": domain.as_card()}

    def on_train_start(self) -> None:
        """Start the clock, or go on from where the checkpoint stopped it."""
        self.began = time.monotonic() - self.seconds

    def budget(self) -> int | None:
        """FFN chunks of this epoch's steps; a peer has none."""
        if not isinstance(self.model, AdaDINO):
            return None
        return executed_chunks(self.current_epoch, self.config.train, self.model.config.bscs)

    def training_step(self, batch: Batch, index: int) -> Tensor:
        """One step; the loss stays on the device."""
        before, after, mask, _ = batch
        settings = self.config.train
        place = settings.seed, self.current_epoch, index, self.global_rank
        before, after, mask = self.augment(before, after, mask, seeded(*place))
        k = self.budget()
        done = index / max(1, int(self.trainer.num_training_batches))
        weight = lambda_cgla(self.current_epoch + done, settings)
        step = self.step_for(k, (before, after, mask))
        # Dropout draws from the global generator; set after a recording, which draws too.
        torch.manual_seed(seeded(*place, 1).initial_seed())
        parts = weigh(step(before, after, mask), weight)
        rate = float(self.trainer.optimizers[0].param_groups[0]["lr"])
        self.schedule = {"lr": rate}
        if k is not None:  # not the k of the scores, which is the configuration's
            self.schedule |= {"train_k": k, "lambda_cgla": weight}
        # Copied: a graph's outputs lie where its next replay writes.
        self.losses.append(LossParts(*(p.detach().clone() for p in parts)))
        if len(self.losses) % 50 == 0:
            self.check_finite()
        return parts.total

    def step_for(self, k: int | None, batch: tuple[Tensor, Tensor, Tensor]) -> Step:
        """The step with k chunks, or a peer's, recorded on its first use if the recipe says so."""
        if k not in self.steps:
            settings, bscs = self.config.train, self.model.config.bscs
            # All budgets of the run at once: a graph cannot be recorded once gradients have been
            # accumulated outside of one.
            epochs = range(settings.epochs)
            budgets = {None if k is None else executed_chunks(e, settings, bscs) for e in epochs}
            teacher = self.open_teacher()
            for budget in budgets:
                step = StepLoss(self.model, k=budget, dice=settings.dice, teacher=teacher)
                graphed = settings.cuda_graph and self.device.type == "cuda"
                bf16 = settings.precision == "bf16"
                self.steps[budget] = record(step, batch, bf16=bf16) if graphed else step
        return self.steps[k]

    def open_teacher(self) -> AdaDINO | None:
        """The trained model that teaches, ready beside the one that learns."""
        settings = self.config.train
        if settings.teacher is None:
            return None
        teacher = load(settings.teacher, device=self.device)
        mine, its = self.model.config, teacher.config
        if not isinstance(teacher, AdaDINO) or (
            (its.backbone.dim, its.taps) != (mine.backbone.dim, mine.taps)
        ):
            raise ConfigError(
                f"train.teacher {settings.teacher} has other features than this model; give a "
                "model of the same backbone and cgla.depths."
            )
        return set_up(teacher, precision=settings.precision).requires_grad_(False)

    def on_after_backward(self) -> None:
        """Between accumulated steps, save the gradients that a graph's next replay overwrites."""
        if self.config.train.cuda_graph and self.config.train.accumulate > 1:
            keep_gradients(self.model)

    def check_finite(self) -> None:
        """Stop on a loss or weight that is no number, before it can reach a checkpoint.

        All ranks stop together: one that went on alone would wait for the others for ever.
        """
        losses = [p.total.isfinite().all() for p in self.losses]
        weights = [p.isfinite().all() for p in self.model.parameters() if p.requires_grad]
        bad = (~torch.stack([*losses, *weights]).all()).int()
        if int(self.trainer.strategy.reduce(bad, reduce_op="sum")):
            kept = (
                ""
                if checkpoint_of(Path(self.config.output)) is None
                else ("The last good checkpoint is untouched. ")
            )
            raise TrainingError(
                f"the loss became NaN or infinite in epoch {self.current_epoch + 1}. {kept}Lower "
                "train.lr, or train with train.precision=32, in a new output folder."
            )

    def on_train_epoch_start(self) -> None:
        """Start the epoch's means."""
        self.losses = []
        if self.config.train.part == "classes":
            hold_all_but_classes(self.model)

    def validation_step(self, batch: Batch, index: int) -> None:
        """Count one batch."""
        before, after, mask, _ = batch
        # Compiled parts would be compiled again for evaluation: a minute, for seconds of work.
        with torch.compiler.set_stance("force_eager"):
            output = self.model(to_float(before), to_float(after))
        predicted = output.logits.float().softmax(1)[:, 1] >= 0.5  # as `adadino evaluate` does
        self.counts += confusion_counts(predicted, change_of(mask))
        if output.classes is not None:
            names = self.model.config.classes.names
            chosen = from_to(output.classes.float().softmax(2))
            counts = semantic_counts(predicted, chosen, mask, len(names))
            self.class_counts = counts if self.class_counts is None else self.class_counts + counts
        self.validated = index + 1, before[:1]

    def on_validation_epoch_start(self) -> None:
        """Refuse an epoch whose loss went wrong; start an empty matrix."""
        self.check_finite()
        self.counts = torch.zeros(4, dtype=torch.int64, device=self.device)
        self.class_counts = None
        self.validated = None

    def on_validation_epoch_end(self) -> None:
        """Sum the matrices of all ranks and add a row to the history."""
        if self.trainer.sanity_checking:  # a Trainer that is not ours tries a batch first
            return
        strategy = self.trainer.strategy
        if isinstance(strategy, ShardedBackbone):
            self.run_along()
        confusion = Confusion.from_counts(strategy.reduce(self.counts, reduce_op="sum"))
        if confusion.tp + confusion.fn == 0 and not self.history:
            warnings.warn(
                f"no pixel of {self.config.data.name}'s validation split changed: F1 stays at zero "
                "and chooses no epoch. Check the label folders; masks are above 127, or above 0 "
                "where the maximum is 1.",
                EmptyWarning,
                stacklevel=1,  # the caller is Lightning, whose warnings are not shown
            )
        scores = confusion.as_dict()
        if self.class_counts is not None:
            counts = strategy.reduce(self.class_counts, reduce_op="sum")
            scores |= SemanticScores.of(Matrix.from_counts(counts)).as_dict()
        self.add_row(scores)
        self.log("val_f1", confusion.f1, prog_bar=True)
        self.log_dict({f"val/{k}": float(v) for k, v in scores.items()})

    def add_row(self, scores: Mapping[str, float]) -> None:
        """Add an epoch's means and scores to the history."""
        parts = torch.stack([torch.stack(p) for p in self.losses]).mean(0)  # (steps, 4) -> (4,)
        parts = self.trainer.strategy.reduce(parts, reduce_op="mean")
        means = dict(zip((f"loss_{n}" for n in LossParts._fields), parts.tolist(), strict=True))
        row = {"epoch": self.current_epoch + 1, **self.schedule, **means, **scores}
        self.history = [*self.history, row]
        self.log_dict({f"train/{k}": v for k, v in means.items()})

    def run_along(self) -> None:
        """Run the model idly until this rank has run it as often as the busiest one."""
        assert self.validated is not None, "every rank has a share of the validation split"
        done, image = self.validated
        # Computed and not communicated: the other ranks are in the middle of a pass.
        pairs = len(cast(Any, self.trainer.val_dataloaders).dataset)
        most = math.ceil(math.ceil(pairs / self.config.train.batch) / self.trainer.world_size)
        for _ in range(most - done):
            self.model(to_float(image), to_float(image))

    def configure_optimizers(self) -> Any:
        """The recipe's optimiser over what is trainable, with its learning rate's schedule."""
        settings = self.config.train
        parameters: list[Any] = [p for p in self.model.parameters() if p.requires_grad]
        fused = parameters[0].is_cuda
        if settings.adapter_lr != 1 and isinstance(self.model, AdaDINO):
            adapters = set(self.model.encoder.cgla.parameters())
            parameters = [
                {"params": [p for p in parameters if p not in adapters]},
                {"params": [*adapters], "lr": settings.adapter_lr * settings.lr},
            ]
        optimizers: dict[str, Callable[..., torch.optim.Optimizer]] = {
            "adamw": torch.optim.AdamW,
            "adam": torch.optim.Adam,
            "sgd": functools.partial(torch.optim.SGD, momentum=settings.momentum),
        }
        optimizer = optimizers[settings.optimizer](
            parameters,
            lr=settings.lr,
            weight_decay=settings.weight_decay,
            fused=fused,
        )
        by_step = settings.schedule == "step"
        periods = int(self.trainer.estimated_stepping_batches) if by_step else settings.epochs
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda period: learning_rate(period, periods, settings)
        )
        interval = "step" if by_step else "epoch"
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": interval},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leave the frozen backbone out: it is named in the configuration and never changes."""
        kept = {f"model.{name}" for name in trained_tensors(self.model)}
        state = checkpoint["state_dict"]
        checkpoint["state_dict"] = {name: state[name] for name in state if name in kept}
        self.seconds = time.monotonic() - self.began
        checkpoint["seconds"] = self.seconds
        checkpoint["history"] = self.history
        checkpoint["best_f1"] = self.best_f1

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the history back, and the backbone from the model at hand."""
        self.history = list(checkpoint["history"])
        self.best_f1 = float(checkpoint["best_f1"])
        self.seconds = float(checkpoint.get("seconds", 0.0))
        for name, tensor in self.state_dict().items():
            checkpoint["state_dict"].setdefault(name, tensor)


def seeded(*numbers: int) -> torch.Generator:
    """A generator whose seed depends on all the numbers and mixes them well."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def to_float(image: Tensor) -> Tensor:
    """uint8 (B, 3, H, W) to float32 in [0, 1], on the image's device; floats lie there already."""
    return image.float() / 255 if image.dtype == torch.uint8 else image.float()
