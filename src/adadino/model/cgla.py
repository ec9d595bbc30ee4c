"""Change-aware gated local adaptation: the pair-aware residual after a frozen block. Eq. 2-7.

CGLA reads the patch tokens of both dates, derives a context from their relation, and writes back a
temporal residual with opposite signs. The residual widens the difference of the dates and leaves
their midpoint where it was. Prefix tokens pass through untouched.

The paper leaves the following open. Its parameter count (4,484,610 for D = 1024) fixes the first
reading and fits the second, which is our choice:

- Convolutions in front of a GroupNorm have no bias, nor has f_loc's depthwise one.
- The LayerNorm before CGLA has no parameters. A norm with frozen parameters, such as the
  backbone's, would give the same count.

gamma_self starts at zero, so CGLA starts as a purely antisymmetric update. Two variants beyond the
paper give it a symmetric path from the start: `gamma_self` above zero, and `mode=both`, which adds
the update of a pair-blind module of its own.

`order_invariant` goes beyond the paper, which loses 0.14 F1 when the dates are swapped: both
appearance slots of z hold the midpoint, so the context no longer knows which date came first, and
the delta takes its sign from tanh(F1 - F2). Swapped dates then swap the two streams and change
nothing else. The parameters are the same.

The pair-blind ablation feeds each date its own features twice, z_i = [F_i, F_i, 0, F_i * F_i]: the
same parameters, and no path from one date to the other. Opposite signs would tell the dates apart,
so its residual enters both with a plus; its responses are the mean of the two dates'.

Mirrored on tokens in `engine/adapter.py`; tests/engine/test_engine.py holds the two equal.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import CGLAConfig
from adadino.model.pair import split_dates


class Responses(NamedTuple):
    """Eq. 7: what CGLA saw, as maps. (B, 1, h, w) from one module, (B, depths, h, w) from all."""

    spatial: Tensor
    """q_s, the spatial gate."""
    local: Tensor
    """q_loc, the channel mean of the joint gate."""
    delta: Tensor
    """q_delta, the channel mean of the gated temporal update."""


class Layers(NamedTuple):
    """CGLA's layers by name, for whoever computes with their weights in another way.

    The modules themselves are numbered (`f_delta.3.weight`): checkpoints have those names.
    """

    relation: nn.Conv2d
    relation_norm: nn.GroupNorm
    context: nn.Conv2d
    context_norm: nn.GroupNorm
    delta_in: nn.Conv2d
    delta_in_norm: nn.GroupNorm
    delta_local: nn.Conv2d
    delta_local_norm: nn.GroupNorm
    delta_out: nn.Conv2d
    local: nn.Conv2d
    local_out: nn.Conv2d


class CGLA(nn.Module):
    """One adapter, after one block."""

    def __init__(
        self, *, dim: int, hidden: int, config: CGLAConfig, order_invariant: bool = False
    ) -> None:
        super().__init__()
        self.mode, self.delta = config.mode, config.delta
        self.order_invariant = order_invariant and config.mode != "blind"
        groups = config.groups

        def depthwise() -> list[nn.Module]:
            return [
                nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False),
                nn.GroupNorm(groups, hidden),
                nn.SiLU(),
            ]

        self.f_rel = nn.Sequential(
            nn.Conv2d(4 * dim, hidden, 1, bias=False), nn.GroupNorm(groups, hidden), nn.SiLU()
        )
        self.f_ctx = nn.Sequential(*depthwise())
        self.w_spatial = nn.Conv2d(hidden, 1, 1)
        self.w_channel = nn.Conv2d(hidden, dim, 1)
        self.f_delta = nn.Sequential(
            nn.Conv2d(hidden, hidden, 1, bias=False),
            nn.GroupNorm(groups, hidden),
            nn.SiLU(),
            *depthwise(),
            nn.Conv2d(hidden, dim, 1),
        )
        self.f_loc = nn.Sequential(
            nn.Conv2d(dim, dim, 3, padding=1, groups=dim, bias=False),
            nn.GELU(),
            nn.Conv2d(dim, dim, 1),
        )
        self.gamma_delta = nn.Parameter(torch.full((dim,), config.gamma_delta))
        self.gamma_self = nn.Parameter(torch.full((dim,), config.gamma_self))
        self.eta = nn.Parameter(torch.tensor(config.eta))
        self.alone: CGLA | None = None
        if config.mode == "both":
            blind = dataclasses.replace(config, mode="blind")
            self.alone = CGLA(dim=dim, hidden=hidden, config=blind)

    @property
    def layers(self) -> Layers:
        """The layers that have weights, by name."""
        chains = self.f_rel, self.f_ctx, self.f_delta, self.f_loc
        has_weights = nn.Conv2d, nn.GroupNorm
        layers = [layer for chain in chains for layer in chain if isinstance(layer, has_weights)]
        return Layers(*cast(Any, layers))

    def forward(self, x: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Responses]:
        """Adapt the tokens of a batch of pairs.

        Args:
            x: Tokens (2B, prefix + hw, D): all first dates, then all second dates.
            grid: Rows and columns of the patch grid.

        Returns:
            The adapted tokens, and the responses, each (B, 1, h, w).
        """
        prefix = x.shape[1] - grid[0] * grid[1]
        update, responses = self.update(x[:, prefix:], grid)
        if self.alone is not None:
            update = update + self.alone.update(x[:, prefix:], grid)[0]
        x = torch.cat((x[:, :prefix], x[:, prefix:] + update.to(x.dtype)), dim=1)
        return x, responses

    def update(self, x: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Responses]:
        """What is added to patch tokens (2B, hw, D), and the responses."""
        patches = F.layer_norm(x, x.shape[-1:]).to(x.dtype)  # autocast gives float32
        features = patches.transpose(1, 2).unflatten(2, grid)  # (2B, hw, D) -> (2B, D, h, w)

        context = self.f_ctx(self.f_rel(self.relation(features)))  # Eq. 2: (B, H, h, w)
        # Eq. 3: the gates (B, 1, h, w) and (B, D, 1, 1), and their product (B, D, h, w).
        gate_spatial = torch.sigmoid(self.w_spatial(context))
        gate_channel = torch.sigmoid(self.w_channel(context.mean((2, 3), keepdim=True)))
        gate = gate_channel * gate_spatial
        d = gate * self.f_delta(context)  # Eq. 4
        if self.order_invariant:
            before, after = split_dates(features)
            d = d * torch.tanh(before - after)
        local = self.f_loc(features)  # Eq. 5: each date on its own

        # Eq. 6. gamma_delta d is the Delta of Eq. 4.
        residual = self.to_both(gate) * _channels(self.gamma_self) * local
        if self.delta != "none":
            residual = residual + self.to_both(d * _channels(self.gamma_delta), signed=True)
        update = (self.eta * residual).flatten(2).transpose(1, 2)  # (2B, D, h, w) -> (2B, hw, D)
        return update, self.responses(gate_spatial, gate, d)

    def relation(self, features: Tensor) -> Tensor:
        """Eq. 2: z = [F1, F2, |F1 - F2|, F1 * F2], or each date with itself when pair-blind."""
        if self.mode == "blind":
            first = second = features
        else:
            first, second = split_dates(features)
        looks = (first, second)
        if self.order_invariant:
            looks = ((first + second) / 2,) * 2
        return torch.cat((*looks, (first - second).abs(), first * second), dim=1)

    def to_both(self, value: Tensor, *, signed: bool = False) -> Tensor:
        """Give a pair's value to both of its dates, with the sign s_i of Eq. 6 if `signed`."""
        if self.mode == "blind":
            return value  # each date already has its own
        negate = signed and self.delta == "antisymmetric"
        return torch.cat((value, -value if negate else value))

    def responses(self, gate_spatial: Tensor, gate: Tensor, d: Tensor) -> Responses:
        """Eq. 7; the gates are positive, so only the delta needs its absolute value."""
        maps = Responses(gate_spatial, gate.mean(1, keepdim=True), d.abs().mean(1, keepdim=True))
        if self.mode == "blind":
            maps = Responses(*((one + other) / 2 for one, other in map(split_dates, maps)))
        return maps


def _channels(vector: Tensor) -> Tensor:
    return vector[:, None, None]
