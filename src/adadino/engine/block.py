"""A frozen block, folded: LayerScale inside the projections, one bias for queries, keys, values.

Tokens are updated in place. What the projections' biases would have added is constant, and is kept
as a `shift` that the next reader adds (`ops/block.py`). Mirrors `Block` of `model/backbone.py`;
tests/engine/test_engine.py holds the two equal.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from adadino.engine.ops import on_gpu
from adadino.engine.ops.block import (
    Chunks,
    activate,
    attention,
    gather,
    layer_norm,
    layer_norm_pooled,
)
from adadino.engine.rows import Kind, Rows, product, quantize
from adadino.model.backbone import Block
from adadino.model.positions import Rope

FUSED_GELU = True
"""GELU inside the product (cuBLASLt, its tanh form) instead of a kernel of its own, in bf16.

The model's GELU is the exact one; the two differ by at most 5e-4."""


def hold(module: nn.Module, **tensors: Tensor | None) -> None:
    """Register copies of tensors as buffers: the model they come from may go on being trained."""
    for name, value in tensors.items():
        kept = None
        if value is not None:
            kept = value.detach().clone(memory_format=torch.contiguous_format)
        module.register_buffer(name, kept)


class Chosen(NamedTuple):
    """The weights of the chunks that a batch executes."""

    up: Rows
    """(N, D)"""
    bias: Tensor
    """(N,)"""
    down: Rows
    """(K, D); in eight bits (D, K)"""


class FastFFN(nn.Module):
    """The FFN of one block, its weights cut into chunks that can be gathered as they lie.

    - An input chunk is a block of rows (of both projections, when gated: one product does both).
    - An output chunk is a block of rows, too: the projection is kept transposed, (C, size, D), and
      LayerScale is folded into it. In eight bits it is (D, C, size) instead, because the tensor
      cores take eight-bit operands only with the summed dimension innermost; a gathered run is
      still `size` bytes long.
    - The output projection adds into the tokens in place; its bias travels as the tokens' `shift`.
    """

    def __init__(self, block: Block, *, chunks: int, dtype: torch.dtype, kind: Kind | None) -> None:
        super().__init__()
        ffn = block.ffn
        self.kind, self.dtype = kind, dtype
        self.size = ffn.up.weight.shape[0] // chunks
        self.gated = 0 if ffn.gate is None else self.size
        inputs = [linear for linear in (ffn.gate, ffn.up) if linear is not None]
        weight = torch.cat([one.weight.unflatten(0, (chunks, -1)) for one in inputs], dim=1)
        bias = torch.cat([one.bias.unflatten(0, (chunks, -1)) for one in inputs], dim=1)
        down = (ffn.down.weight * block.ls2[:, None]).unflatten(1, (chunks, -1))  # (D, C, size)
        self.up: Tensor
        self.up_scale: Tensor | None
        self.bias: Tensor
        self.down: Tensor
        self.down_scale: Tensor | None
        up = quantize(weight, kind)  # (C, rows, D)
        out, out_scale = down.permute(1, 2, 0).to(dtype), None
        if kind:
            rows = quantize(down.flatten(1), kind)
            out, out_scale = rows.values.view(down.shape), rows.scale
        hold(
            self,
            up=up.values if kind else up.values.to(dtype),
            up_scale=up.scale,
            bias=bias.to(dtype),
            down=out,
            down_scale=out_scale,
        )

    def choose(self, keep: Tensor | None) -> Chosen:
        """The weights of the kept chunks (k,), gathered; None is all of them, as they lie."""
        chunks = Chunks(self.up, self.up_scale, self.bias, self.down)
        up, scale, bias, down = chunks if keep is None else gather(chunks, keep)
        up_rows = Rows(up.flatten(0, 1), None if scale is None else scale.flatten())
        flat = down.flatten(1) if self.kind else down.flatten(0, 1)
        return Chosen(up_rows, bias.flatten(), Rows(flat, self.down_scale))

    def forward(self, x: Tensor, rows: Rows, chosen: Chosen) -> Tensor:
        """Add the FFN of normalised rows (R, D) to the tokens x, in place."""
        fused = FUSED_GELU and not (self.gated or self.kind) and self.dtype == torch.bfloat16
        if fused and on_gpu(x):
            weight = chosen.up.values.t()
            hidden = Rows(torch._addmm_activation(chosen.bias, rows.values, weight, use_gelu=True))
        else:
            y = product(rows, chosen.up, chosen.bias, self.dtype)
            hidden = activate(y, gated=self.gated, kind=self.kind)
        tokens = x.view(-1, x.shape[-1])
        if self.kind:
            tokens.add_(product(hidden, chosen.down, None, self.dtype))
        else:
            tokens.addmm_(hidden.values, chosen.down.values)
        return x


class FastBlock(nn.Module):
    """One block's weights, and the two halves of its forward pass."""

    def __init__(
        self, block: Block, shift: Tensor, *, chunks: int, dtype: torch.dtype, kind: Kind | None
    ) -> None:
        """Fold a block.

        Args:
            block: The frozen block.
            shift: Constant that the entering tokens lack (D,), float32.
            chunks: Number of chunks of the FFN.
            dtype: Type of the tokens.
            kind: Eight-bit kind of the large products, if any.
        """
        super().__init__()
        attn = block.attn
        self.heads, self.kind, self.dtype = attn.heads, kind, dtype
        self.ffn = FastFFN(block, chunks=chunks, dtype=dtype, kind=kind)
        qkv = quantize(attn.qkv.weight, kind)
        bias = None if attn.qkv_bias is None else attn.qkv_bias.to(dtype)
        middle = shift + (attn.proj.bias * block.ls1).float()
        self.qkv: Tensor
        self.qkv_scale: Tensor | None
        self.qkv_bias: Tensor | None
        self.proj: Tensor
        self.weight1: Tensor
        self.bias1: Tensor
        self.weight2: Tensor
        self.bias2: Tensor
        self.shift: Tensor
        self.shift_middle: Tensor
        self.shift_out: Tensor
        self.eps = block.norm1.eps
        hold(
            self,
            qkv=qkv.values if kind else qkv.values.to(dtype),
            qkv_scale=qkv.scale,
            qkv_bias=bias,
            # The projection stays in 16 bits: quantising what enters costs what the product saves.
            proj=(attn.proj.weight * block.ls1[:, None]).t().to(dtype),  # (K, D)
            weight1=block.norm1.weight.float(),
            bias1=block.norm1.bias.float(),
            weight2=block.norm2.weight.float(),
            bias2=block.norm2.bias.float(),
            shift=shift,
            shift_middle=middle,
            shift_out=middle + (block.ffn.down.bias * block.ls2).float(),
        )

    def attend(self, x: Tensor, rows: Rows, rope: Rope | None, *, prefix: int) -> Tensor:
        """Add the attention of normalised rows to tokens x (B, N, D), in place."""
        B, N, D = x.shape
        qkv = product(rows, Rows(self.qkv, self.qkv_scale), self.qkv_bias, self.dtype)
        y = attention(qkv.view(B, N, 3 * D), rope, heads=self.heads, prefix=prefix)
        x.view(-1, D).addmm_(y.view(-1, D), self.proj)
        return x

    def norm1(self, x: Tensor, *, prefix: int, pooled: bool) -> tuple[Rows, Tensor | None]:
        """The LayerNorm in front of the attention, and the policy's input if `pooled`."""
        shift, weight, bias = self.shift, self.weight1, self.bias1
        if pooled:
            return layer_norm_pooled(
                x,
                prefix=prefix,
                shift=shift,
                weight=weight,
                bias=bias,
                eps=self.eps,
                kind=self.kind,
            )
        return layer_norm(
            x, shift=shift, weight=weight, bias=bias, eps=self.eps, kind=self.kind
        ), None

    def norm2(self, x: Tensor) -> Rows:
        """The LayerNorm in front of the FFN."""
        return layer_norm(
            x,
            shift=self.shift_middle,
            weight=self.weight2,
            bias=self.bias2,
            eps=self.eps,
            kind=self.kind,
        )
