"""How a step runs, apart from what it learns: precision, compiling, CUDA graphs, several devices.

**One device.** `set_up` holds frozen weights in bf16 and compiles the model part by part instead of
as a whole: its 24 blocks share one compiled graph (14 graphs in all), the rotary tables enter as
data instead of being computed again in every block, and blocks before the first adapter, which need
no gradient, get a graph without one. `docs/performance.md` has the figures.

**A CUDA graph.** A small model's step is some three thousand tiny kernels, and Python cannot issue
them as fast as a GPU runs them. `record` runs forward, losses and backward once and lets the host
issue all of it as one call. What is computed is the same.

- A graph holds its shapes and its budget k: the BSCS warm-up and what follows are two graphs.
- Recording runs the step a few times first, which would move the running statistics of every
  BatchNorm: they are put back.
- A replayed backward writes its gradients where it did before, and autograd may hand out that very
  memory as `.grad`. Between accumulated steps they are copied (`keep_gradients`), or the second
  step would overwrite the first.

**Several devices.** Every device has the whole model (DDP), or a share of the frozen backbone
(FSDP). Only a few per cent of the model are trained, so the frozen weights fill a device, and only
they are sharded: each block lies in as many pieces as there are devices, and is put together while
it is used (PyTorch's FSDP2). What is trained, its gradients, the optimiser and the checkpoints are
those of DDP, so a run may go on with the other strategy, or on another number of devices.
A sharded block waits for all devices. Whatever runs the model must therefore run it equally often
on every one of them (`ChangeTask.run_along`, `Keeper`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from adadino.data.folder import change_of
from adadino.errors import ConfigError
from adadino.losses import DiceKind, LossTerms, loss_terms, teacher_loss
from adadino.model.adadino import AdaDINO
from adadino.model.detector import Detector, Output
from adadino.semantic.losses import classes_loss
from adadino.training.config import RunConfig

Step = Callable[[Tensor, Tensor, Tensor], LossTerms]
Model = TypeVar("Model", bound=Detector)


class StepLoss(nn.Module):
    """Model and losses as one module: tensors in, the terms of the loss out."""

    def __init__(
        self,
        model: Detector,
        *,
        k: int | None,
        dice: DiceKind,
        teacher: AdaDINO | None = None,
    ) -> None:
        super().__init__()
        self.model, self.k, self.dice, self.teacher = model, k, dice, teacher

    def forward(self, before: Tensor, after: Tensor, mask: Tensor) -> LossTerms:
        """The terms of an augmented batch, before `losses.weigh`."""
        if self.teacher is None or not isinstance(self.model, AdaDINO):
            return self.terms(self.model(before, after, k=self.k), mask)
        encoding, output = self.model.encode_and_decode(before, after, k=self.k)
        dense = self.teacher.config.bscs.chunks
        with torch.no_grad():
            seen, taught = self.teacher.encode_and_decode(before, after, k=dense)
        lesson = teacher_loss(output.logits, taught.logits, encoding.features, seen.features)
        return (*self.terms(output, mask), lesson)

    def terms(self, output: Output, mask: Tensor) -> LossTerms:
        """The terms that need the labels."""
        delta = None if output.responses is None else output.responses.delta
        change = change_of(mask)
        terms = loss_terms(output.logits, output.pyramid, delta, change, dice=self.dice)
        if output.classes is None:
            return terms
        return (*terms, classes_loss(output.classes, mask))


def set_up(
    model: Model, *, precision: str, compile: bool = False, checkpointing: bool = False
) -> Model:
    """Set a model up for a recipe, in place.

    Args:
        model: The model.
        precision: "32" is the paper's; "bf16" the fast one.
        compile: Compile blocks, adapters, neck, decoder and refiner; AdaDINO only.
        checkpointing: Recompute the blocks in the backward pass: less memory, more time; AdaDINO
            only.
    """
    frozen = model.dino if not model.config.backbone.trainable else None
    if precision == "bf16" and frozen is not None:
        # Half the memory, and no cast of 300M weights in every step. They receive no gradient, so
        # none is lost. The tokens are in bf16 too: what CGLA adds at its start, a ten-thousandth of
        # them, is mostly rounded away, until its gains have grown (docs/notes/results.md).
        frozen.to(torch.bfloat16)
    if not isinstance(model, AdaDINO):
        if precision == "bf16":
            # Most of a peer is convolutions, and tensor cores read channels last: without this
            # every one of them turns its map over and back.
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model
    model.encoder.checkpointing = checkpointing
    if compile:
        # One block's code meets: with and without gradient, masked or dense, training and
        # validation, a split's last batch. The default limit of eight would fall back to eager.
        torch._dynamo.config.recompile_limit = 64
        encoder = model.encoder
        parts = [*encoder.backbone.blocks, *encoder.cgla.values(), *model.neck.necks]
        parts += [model.decoder.block, *model.decoder.stages]
        parts += [part for part in (model.refiner, model.stream, model.classes) if part is not None]
        for part in parts:
            part.compile(dynamic=False)
    return model


def keep_gradients(model: nn.Module) -> None:
    """Move gradients out of a graph's memory, before its next replay writes there."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad = parameter.grad.clone()


def record(step: StepLoss, batch: tuple[Tensor, Tensor, Tensor], *, bf16: bool) -> Step:
    """Record a step for batches of this shape.

    Args:
        step: The step, in training mode, on a CUDA device.
        batch: A batch to record with; its values do not matter.
        bf16: Run under autocast.
    """
    # Recording runs the step on a stream of its own, by design; the remark is for other mistakes.
    silence = getattr(
        torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", lambda _: None
    )
    silence(False)
    buffers = {name: buffer.clone() for name, buffer in step.named_buffers()}
    sample = tuple(part.clone() for part in batch)
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16, cache_enabled=False):
        graphed = torch.cuda.make_graphed_callables(step, sample, allow_unused_input=True)
    for name, buffer in step.named_buffers():
        buffer.copy_(buffers[name])
    return cast(Step, graphed)


class ShardedBackbone(DDPStrategy):
    """DDP over a model whose frozen blocks are sharded."""

    def configure_ddp(self) -> None:
        """Shard the blocks, then wrap what is left."""
        task = cast(nn.Module, self.model)
        mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        for block in cast(Any, task).model.dino.blocks:
            # Explicit, because each block is a root to PyTorch, and by default roots stay whole.
            fully_shard(block, mesh=mesh, reshard_after_forward=True)
        sharded = [name for name, weight in task.named_parameters() if isinstance(weight, DTensor)]
        # Without this DDP would send the shards of one device to all others.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(task, sharded)
        super().configure_ddp()


def choose_strategy(config: RunConfig) -> Any:
    """The strategy to give to Lightning's Trainer.

    Raises:
        ConfigError: FSDP is asked for and there is nothing to shard.
    """
    settings, backbone = config.train, config.model.backbone
    if settings.strategy == "fsdp":
        if config.model.peer is not None or backbone.trainable or backbone.weights is None:
            raise ConfigError(
                "train.strategy=fsdp shards a frozen backbone that model.backbone.weights names; "
                "here there is none, so use train.strategy=ddp."
            )
        if settings.devices * settings.nodes == 1:
            raise ConfigError(
                "train.strategy=fsdp shares weights among devices, and there is one; use "
                "train.strategy=ddp, or set train.devices."
            )
        return ShardedBackbone(find_unused_parameters=True)
    several = settings.devices * settings.nodes > 1
    # Policies rest during the warm-up, priors have no gradient path: some are always unused.
    return "ddp_find_unused_parameters_true" if several else "auto"
