"""Batch-shared chunk selection: which parts of every FFN a batch executes. Sec. 3.3, Eq. 8-12.

The FFN's hidden width is cut into C contiguous chunks. A small policy per block reads pooled pair
statistics of the tokens that enter the block, scores the chunks, and the k best of the batch's mean
score are executed: as a compact dense FFN at inference, as a straight-through mask in training.

- The shape of everything depends on k alone, never on the scores, and nothing is read back by the
  host: `torch.compile(fullgraph=True)` and `torch.export` take the forward pass as it is.
- Pooling runs in float32, whatever the tokens' type: means over a thousand products in bf16 lose
  the differences the policy is there to see.
- The straight-through mask is written `hard + (p - sg(p))`, not Eq. 11's `sg(hard - p) + p`: the
  same value and gradient, but exactly k-hot in floating point.
- The paper's "Bottom-6" and "Static Top-6" fix their masks from the training set's mean scores;
  here both read one `ranking` (best first), which `rank_chunks` makes. "Random-6" keeps a fixed
  random subset, and the paper does not say which: ours is drawn with `bscs.seed`, to which
  the tables give the run's seed.
- Mirrored for inference in `engine/encoder.py`; tests/engine/test_engine.py holds the two equal.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import Config
from adadino.errors import ConfigError
from adadino.model.backbone import Selection

if TYPE_CHECKING:
    from adadino.model.detector import Detector


def pool_pair(before: Tensor, after: Tensor, *, order_invariant: bool = False) -> Tensor:
    """PoolPair of Eq. 8: mean of each date, of their absolute difference, of their product.

    Patch tokens of both dates (B, hw, D) -> (B, 4D). Order-invariant, their midpoint stands for
    each date.
    """
    before, after = before.float(), after.float()
    first, second = before.mean(1), after.mean(1)
    if order_invariant:
        first = second = (first + second) / 2
    difference, agreement = (before - after).abs().mean(1), (before * after).mean(1)
    return torch.cat((first, second, difference, agreement), dim=-1)


def straight_through(scores: Tensor, k: int, temperature: float = 1.0) -> Tensor:
    """Scores (B, C) -> one mask (C,), k-hot in value, sigmoid in gradient."""
    probability = torch.sigmoid(scores.mean(0) / temperature)  # Eq. 9
    hard = torch.zeros_like(probability).scatter(0, top_chunks(scores, k), 1.0)
    return hard + (probability - probability.detach())  # Eq. 11


def top_chunks(scores: Tensor, k: int) -> Tensor:
    """Eq. 10: indices (k,) of the best chunks of the batch's mean score, in ascending order.

    The sigmoid of Eq. 9 keeps the order, so the scores themselves are compared.
    """
    return scores.mean(0).topk(k).indices.sort().values


def top_chunks_by_block(scores: Tensor, k: int) -> Tensor:
    """`top_chunks` of every block: scores (B, blocks, C) of a sample -> chunks (blocks, k)."""
    return torch.stack([top_chunks(block, k) for block in scores.unbind(1)])


class Policy(nn.Module):
    """One block's scorer: Linear(4D, hidden), GELU, Linear(hidden, C)."""

    def __init__(
        self, *, dim: int, hidden: int, chunks: int, order_invariant: bool = False
    ) -> None:
        super().__init__()
        self.order_invariant = order_invariant
        self.fc1 = nn.Linear(4 * dim, hidden)
        self.fc2 = nn.Linear(hidden, chunks)

    def forward(self, before: Tensor, after: Tensor) -> Tensor:
        """Eq. 8: score the chunks from patch tokens of both dates (B, hw, D) -> (B, C)."""
        pooled = pool_pair(before, after, order_invariant=self.order_invariant)
        pooled = pooled.to(self.fc1.weight.dtype)
        return self.fc2(F.gelu(self.fc1(pooled))).float()


class ChunkSelector(nn.Module):
    """The policies of all blocks, or the fixed choices that stand in for them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config.bscs
        self.size = config.backbone.ffn // config.bscs.chunks
        depth = config.backbone.depth
        self.policies = nn.ModuleList(
            Policy(
                dim=config.backbone.dim,
                hidden=self.config.hidden,
                chunks=self.config.chunks,
                order_invariant=config.order_invariant,
            )
            for _ in range(depth if self.config.selection == "learned" else 0)
        )
        # Not in the state dict: the configuration holds it, or the seed gives it.
        self.fixed: Tensor | None
        self.register_buffer("fixed", self._fixed(depth), persistent=False)

    def _fixed(self, depth: int) -> Tensor | None:
        """One order of the chunks per block (depth, C), the ones to execute first."""
        selection = self.config.selection
        if selection in ("learned", "off"):
            return None
        if selection == "random":
            draw, chunks = random.Random(self.config.seed), range(self.config.chunks)
            ranking = [draw.sample(chunks, len(chunks)) for _ in range(depth)]
        else:
            assert self.config.ranking is not None
            ranking = [list(order) for order in self.config.ranking]
        if selection == "bottom":
            ranking = [order[::-1] for order in ranking]
        return torch.tensor(ranking)

    def score(self, block: int, before: Tensor, after: Tensor) -> Tensor:
        """The policy's scores (B, C) for one block; learned selection only."""
        scores: Tensor = self.policies[block](before, after)
        return scores

    def select(
        self, block: int, *, k: int, scores: Tensor | None, chunks: Tensor | None
    ) -> Selection | None:
        """Choose what a block's FFN executes; None is all of it.

        Args:
            block: Which block.
            k: Budget; all chunks means the dense FFN.
            scores: The policy's scores (B, C), if the selection is learned.
            chunks: A choice from outside (depth, k') that overrides everything.
        """
        if chunks is not None:
            return Selection(self.size, keep=chunks[block])
        if k == self.config.chunks or self.config.selection == "off":
            return None
        if scores is None:
            assert self.fixed is not None
            return Selection(self.size, keep=self.fixed[block, :k].sort().values)
        if self.training:
            return Selection(self.size, gate=straight_through(scores, k, self.config.temperature))
        return Selection(self.size, keep=top_chunks(scores, k))


@torch.inference_mode()
def rank_chunks(
    model: Detector, pairs: Iterable[tuple[Tensor, Tensor]]
) -> tuple[tuple[int, ...], ...]:
    """Order the FFN chunks of every block by the policy's mean score over many pairs.

    The result is what `bscs.ranking` wants for the static and bottom selections.

    Args:
        model: A model with a trained policy.
        pairs: Batches of first and second dates, as the model takes them.
    """
    total, count, training = torch.zeros(()), 0, model.training
    model.eval()
    try:
        for before, after in pairs:
            scores = model(before, after).scores
            if scores is None:
                bscs = model.config.bscs
                raise ConfigError(
                    f"a ranking needs the learned policy at k below {bscs.chunks}; this model has "
                    f"selection={bscs.selection}, k={bscs.k}."
                )
            total = total + scores.cpu().double().sum(0)  # MPS has no float64
            count += len(scores)
    finally:
        model.train(training)
    if not count:
        raise ConfigError("a ranking needs at least one pair; give some of the training set.")
    order = (total / count).argsort(dim=1, descending=True, stable=True)
    return tuple(tuple(row) for row in order.tolist())
