"""One training step as a CUDA graph: forward, losses and backward without the host.

A small model's step is some three thousand tiny kernels, and Python cannot issue them as fast as a
GPU runs them. Recorded once and replayed, the host issues one. What is computed is the same.

- A graph holds its shapes and its budget k: the BSCS warm-up and what follows are two graphs.
- Recording runs the step a few times first, which would move the running statistics of every
  BatchNorm: they are put back.
- A replayed backward writes its gradients where it did before, and autograd may hand out that very
  memory as `.grad`. Between accumulated steps they are copied (`keep_gradients`), or the second
  step would overwrite the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from adadino.losses import DiceKind, LossParts, total_loss
from adadino.model.detector import Detector

Step = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


class StepLoss(nn.Module):
    """Model and losses as one module: tensors in, the three terms out."""

    def __init__(self, model: Detector, *, k: int | None, dice: DiceKind) -> None:
        super().__init__()
        self.model, self.k, self.dice = model, k, dice

    def forward(self, before: Tensor, after: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Focal, Dice and CGLA terms of an augmented batch; the last is not weighted yet."""
        output = self.model(before, after, k=self.k)
        delta = None if output.responses is None else output.responses.delta
        parts = total_loss(
            output.logits, output.pyramid, delta, mask, lambda_cgla=0.0, dice=self.dice
        )
        return parts.focal, parts.dice, parts.cgla


def weigh(terms: tuple[Tensor, Tensor, Tensor], lambda_cgla: float) -> LossParts:
    """The whole loss from its terms."""
    focal, dice, cgla = terms
    return LossParts(focal + dice + lambda_cgla * cgla, focal, dice, cgla)


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
