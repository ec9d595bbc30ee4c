"""CGLA on tokens: 1x1 convolutions are matrix products, and no map is transposed.

The first product takes [F1, F2] and [|F1 - F2|, F1 * F2] as two operands and adds the results, so
the 4D channels of Eq. 2 are never concatenated. Order invariance is folded into its weights: the
midpoint in both slots is half of each date in each slot. Mirrors `CGLA.forward` of `model/cgla.py`;
tests/engine/test_engine.py holds the two equal, in every variant.
"""

from __future__ import annotations

from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.engine.block import hold
from adadino.engine.cuda import SideStream
from adadino.engine.ops.adapter import (
    affine_silu,
    context,
    depthwise,
    gated_residual_,
    group_affine,
    pair_norm,
)
from adadino.model.cgla import CGLA, Responses

_SIGN = {"antisymmetric": -1, "symmetric": 1, "none": 1}


class PlainAdapter(nn.Module):
    """Pair-blind and `mode=both`, computed by the model's own CGLA: nobody deploys them."""

    def __init__(self, cgla: CGLA, dtype: torch.dtype) -> None:
        super().__init__()
        self.cgla = deepcopy(cgla).to(dtype)

    def forward(self, x: Tensor, shift: Tensor, grid: tuple[int, int], _: SideStream) -> Responses:
        """Adapt tokens (2B, N, D) in place; returns the responses, each (B, 1, h, w)."""
        y, responses = self.cgla((x.float() + shift).to(x.dtype), grid)
        x.copy_(y.float() - shift)
        return Responses(*(one.float() for one in responses))


class Adapter(nn.Module):
    """CGLA in pair mode, with all of its variants."""

    w_looks: Tensor
    w_relation: Tensor
    w_context: Tensor
    w_spatial: Tensor
    b_spatial: Tensor
    w_channel: Tensor
    b_channel: Tensor
    w_delta1: Tensor
    w_delta2: Tensor
    w_delta3: Tensor
    b_delta3: Tensor
    w_local1: Tensor
    w_local2: Tensor
    b_local2: Tensor
    gamma_self: Tensor
    gamma_delta: Tensor

    def __init__(self, cgla: CGLA, dtype: torch.dtype) -> None:
        super().__init__()
        self.order_invariant, self.sign = cgla.order_invariant, _SIGN[cgla.delta]
        layers = cgla.layers
        weight = _weight(layers.relation).float().unflatten(1, (4, -1))  # (H, 4, D)
        looks = weight[:, :2]
        if cgla.order_invariant:
            looks = looks.mean(1, keepdim=True).expand_as(looks)
        injected = 0.0 if cgla.delta == "none" else 1.0
        hold(
            self,
            w_looks=looks.flatten(1).t().to(dtype),  # (2D, H), as addmm_ takes it
            w_relation=weight[:, 2:].flatten(1).to(dtype),  # (H, 2D)
            w_context=_weight(layers.context).t().to(dtype),
            w_spatial=_weight(cgla.w_spatial)[0].float(),
            b_spatial=_bias(cgla.w_spatial).float(),
            w_channel=_weight(cgla.w_channel).float(),
            b_channel=_bias(cgla.w_channel).float(),
            w_delta1=_weight(layers.delta_in).to(dtype),
            w_delta2=_weight(layers.delta_local).t().to(dtype),
            w_delta3=_weight(layers.delta_out).to(dtype),
            b_delta3=_bias(layers.delta_out).to(dtype),
            # Both dates lie side by side as channels.
            w_local1=_weight(layers.local).t().repeat(1, 2).to(dtype),
            w_local2=_weight(layers.local_out).to(dtype),
            b_local2=_bias(layers.local_out).to(dtype),
            gamma_self=(cgla.gamma_self * cgla.eta).float(),
            gamma_delta=(cgla.gamma_delta * cgla.eta).float() * injected,
        )
        self.norm_relation = deepcopy(layers.relation_norm).float()
        self.norm_context = deepcopy(layers.context_norm).float()
        self.norm_delta1 = deepcopy(layers.delta_in_norm).float()
        self.norm_delta2 = deepcopy(layers.delta_local_norm).float()

    def forward(
        self, x: Tensor, shift: Tensor, grid: tuple[int, int], side: SideStream
    ) -> Responses:
        """Adapt tokens (2B, N, D) in place.

        Args:
            x: The tokens: all first dates, then all second dates.
            shift: Constant that the tokens lack (D,).
            grid: Rows and columns of the patch grid.
            side: Stream of the local branch and the channel gate, which delta does not need.

        Returns:
            The responses, each (B, 1, h, w), float32.
        """
        B, D, (h, w) = x.shape[0] // 2, x.shape[2], grid
        features, relation = pair_norm(x, prefix=x.shape[1] - h * w, shift=shift)  # (B, hw, 2, D)

        with side.fork():
            local = depthwise(features.view(B, h, w, 2 * D), self.w_local1, after="gelu")
            local = F.linear(local.reshape(B, h * w, 2, D), self.w_local2, self.b_local2)

        z = F.linear(relation.view(-1, 2 * D), self.w_relation)
        z = z.addmm_(features.view(-1, 2 * D), self.w_looks).view(B, h * w, -1)
        z = affine_silu(z, group_affine(z, self.norm_relation))
        z = depthwise(z.view(B, h, w, -1), self.w_context).flatten(1, 2)  # (B, hw, H)
        seen, gate_spatial, parts = context(
            z, group_affine(z, self.norm_context), self.w_spatial, self.b_spatial
        )
        with side.fork():
            gate_channel = torch.sigmoid(F.linear(parts.sum(1), self.w_channel, self.b_channel))
            q_local = gate_spatial * gate_channel.mean(1, keepdim=True)

        delta = F.linear(seen, self.w_delta1)
        delta = affine_silu(delta, group_affine(delta, self.norm_delta1))
        delta = depthwise(delta.view(B, h, w, -1), self.w_delta2).flatten(1, 2)
        delta = affine_silu(delta, group_affine(delta, self.norm_delta2))
        delta = F.linear(delta, self.w_delta3, self.b_delta3)  # (B, hw, D)

        side.join()
        q_delta = gated_residual_(
            x,
            local,
            delta,
            gate_spatial=gate_spatial,
            gate_channel=gate_channel,
            gamma_self=self.gamma_self,
            gamma_delta=self.gamma_delta,
            sign=self.sign,
            features=features if self.order_invariant else None,
        )
        return Responses(*(q.view(B, 1, h, w) for q in (gate_spatial, q_local, q_delta)))


def _weight(conv: nn.Conv2d) -> Tensor:
    """A convolution's weight as a matrix: (out, in) of a 1x1, (C, 9) of a depthwise 3x3."""
    return conv.weight.detach().flatten(1)


def _bias(conv: nn.Conv2d) -> Tensor:
    assert conv.bias is not None
    return conv.bias
