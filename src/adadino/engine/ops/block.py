"""A block's operations that are not matrix products: norms, rotation, attention, chunks, GELU.

The tokens x of the engine lack the biases of the projections that were added into them: those are
constants, so their running sum `shift` is added where tokens are read, and the projection can add
its product into x in place (`addmm_`, which has no room for a bias as well).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from adadino.engine.ops import kernel_in, on_gpu
from adadino.engine.rows import Kind, Rows, quantize, take
from adadino.model.bscs import pool_pair, top_chunks
from adadino.model.pair import split_dates
from adadino.model.positions import Rope, rotate

LONGEST_SEQUENCE = 2048
"""Up to so many tokens our kernel replaces cuDNN's and a rotation of the queries in memory. It wins
because five prefix tokens do not cost it a tile of 128 (410 us against 435 at 1029 tokens; at 1024
cuDNN needs 312). In a long sequence that tile hardly matters."""
BACKENDS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
"""The order of preference on a GPU; PyTorch's own begins with an older kernel."""


@kernel_in("norm")
def layer_norm(
    x: Tensor, *, shift: Tensor, weight: Tensor, bias: Tensor, eps: float, kind: Kind | None = None
) -> Rows:
    """Normalise tokens (..., D) into rows (R, D), in eight bits if a kind is given."""
    rows = (x.flatten(0, -2).float() + shift).to(x.dtype)
    rows = F.layer_norm(rows, rows.shape[-1:], weight.to(x.dtype), bias.to(x.dtype), eps)
    return quantize(rows, kind)


@kernel_in("norm")
def layer_norm_pooled(
    x: Tensor,
    *,
    prefix: int,
    shift: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    kind: Kind | None = None,
) -> tuple[Rows, Tensor]:
    """`layer_norm` of both dates' tokens (2B, N, D), and Eq. 8 from the same reading.

    Returns:
        The rows, and float32 parts (B, parts, 4D) whose sum is PoolPair: means of the patch tokens
        of each date, of their absolute difference, of their product.
    """
    rows = layer_norm(x, shift=shift, weight=weight, bias=bias, eps=eps, kind=kind)
    before, after = split_dates(x[:, prefix:].float() + shift)
    return rows, pool_pair(before, after)[:, None]


@kernel_in("attention")
def rope_(qkv: Tensor, cos: Tensor, sin: Tensor, *, heads: int, queries: bool = True) -> Tensor:
    """Turn the keys, and the queries, of tokens (B, N, 3D) by tables (N, head_dim), in place.

    Both halves of a head turn by the same angles, so only the first half of a table is read.
    """
    D = qkv.shape[-1] // 3
    turned = qkv[..., 0 if queries else D : 2 * D].unflatten(-1, (-1, D // heads))
    turned.copy_(rotate(turned, cos[:, None].to(qkv.dtype), sin[:, None].to(qkv.dtype)))
    return qkv


def attention(qkv: Tensor, rope: Rope | None, *, heads: int, prefix: int) -> Tensor:
    """Attend over all tokens.

    Args:
        qkv: Queries, keys and values (B, N, 3D), not rotated yet; overwritten.
        rope: Cosine and sine (N, head_dim), float32; None where positions are learned.
        heads: Number of heads.
        prefix: Tokens in front of the patches: what keeps N from being a multiple of a tile.

    Returns:
        (B, N, D), contiguous.
    """
    B, N, D = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    if N <= LONGEST_SEQUENCE and on_gpu(qkv) and fits(qkv.dtype, D // heads):
        from adadino.engine.kernels.attention import attention as kernel

        return kernel(qkv, rope, heads=heads, prefix=prefix)
    if rope is not None:
        qkv = rope_(qkv, *rope, heads=heads)
    q, k, v = qkv.view(B, N, 3, heads, -1).permute(2, 0, 3, 1, 4)
    with sdpa_kernel(BACKENDS, set_priority=True) if qkv.is_cuda else nullcontext():
        y = F.scaled_dot_product_attention(q, k, v)
    return y.transpose(1, 2).reshape(B, N, D)


def fits(dtype: torch.dtype, head_dim: int) -> bool:
    """Whether the kernel takes it: 16 bits, and heads that tensor cores and shared memory hold."""
    return dtype == torch.bfloat16 and head_dim in (16, 32, 64)


@kernel_in("select")
def select(
    parts: Tensor, *, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """Choose a batch's chunks; everything in float32.

    Args:
        parts: (B, parts, 4D), which add up to PoolPair.
        weight1: (hidden, 4D) of the policy's first layer.
        bias1: (hidden,)
        weight2: (C, hidden) of its second.
        bias2: (C,)
        k: How many chunks.

    Returns:
        The scores (B, C), and the best chunks (k,) of their mean, ascending. Of equal means the
        kernel takes the lower chunk; `topk` does not say which it takes.
    """
    hidden = F.gelu(F.linear(parts.sum(1), weight1, bias1))
    scores = F.linear(hidden, weight2, bias2)
    return scores, top_chunks(scores, k)


class Chunks(NamedTuple):
    """An FFN's weights by chunk; all of them, or the gathered ones."""

    up: Tensor
    """(C, rows, D)"""
    scale: Tensor | None
    """(C, rows), in eight bits."""
    bias: Tensor
    """(C, rows)"""
    down: Tensor
    """(C, size, D); in eight bits (D, C, size)"""


@kernel_in("gather")
def gather(chunks: Chunks, keep: Tensor) -> Chunks:
    """The chunks `keep` (k,), in that order."""
    up, scale, bias, down = chunks
    return Chunks(
        take(up, 0, keep),
        None if scale is None else scale.index_select(0, keep),
        bias.index_select(0, keep),
        take(down, 0 if scale is None else 1, keep),
    )


@kernel_in("activation")
def activate(hidden: Tensor, *, gated: int = 0, kind: Kind | None = None) -> Rows:
    """GELU of rows (R, K), or SwiGLU of rows made of chunks [gate, value].

    Args:
        hidden: What the input projection gave.
        gated: Channels of one chunk if the FFN is gated; 0 if it is plain.
        kind: Eight-bit kind of the result, if any.
    """
    if gated:
        gate, value = hidden.unflatten(-1, (-1, 2, gated)).unbind(-2)
        return quantize((F.silu(gate) * value).flatten(1), kind)
    return quantize(F.gelu(hidden), kind)
