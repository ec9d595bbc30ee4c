"""A frozen block, folded: LayerScale inside the projections, one bias for queries, keys, values.

Tokens are updated in place. What the projections' biases would have added is constant, and is kept
as a `shift` that the next reader adds (`kernels/norm.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from adadino.engine.ffn import FFN
from adadino.engine.ops.attention import attention
from adadino.engine.ops.norm import layer_norm, layer_norm_pooled
from adadino.engine.rows import Kind, Rows, product, quantize
from adadino.model.backbone import Block


class FastBlock(nn.Module):
    """One block's weights, and the two halves of its forward pass."""

    def __init__(
        self, block: Block, shift: Tensor, *, chunks: int, dtype: torch.dtype, kind: Kind | None
    ) -> None:
        """Fold a block.

        Args:
            block: The frozen block.
            shift: What the tokens that enter lack (D,), float32.
            chunks: Number of chunks of the FFN.
            dtype: Type of the tokens.
            kind: Eight-bit kind of the large products, if any.
        """
        super().__init__()
        attn = block.attn
        self.heads, self.kind, self.dtype = attn.heads, kind, dtype
        self.ffn = FFN(block, chunks=chunks, dtype=dtype, kind=kind)
        qkv = quantize(attn.qkv.weight, kind)
        bias = None
        if attn.q_bias is not None and attn.v_bias is not None:
            bias = torch.cat((attn.q_bias, torch.zeros_like(attn.q_bias), attn.v_bias)).to(dtype)
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
        held = {
            "qkv": qkv.values if kind else qkv.values.to(dtype),
            "qkv_scale": qkv.scale,
            "qkv_bias": bias,
            # The projection stays in 16 bits: quantising what enters costs what the product saves.
            "proj": (attn.proj.weight * block.ls1[:, None]).t().to(dtype),  # (K, D)
            "weight1": block.norm1.weight.float(),
            "bias1": block.norm1.bias.float(),
            "weight2": block.norm2.weight.float(),
            "bias2": block.norm2.bias.float(),
            "shift": shift,
            "shift_middle": middle,
            "shift_out": middle + (block.ffn.down.bias * block.ls2).float(),
        }
        for name, value in held.items():
            copy = None if value is None else value.detach().clone()
            self.register_buffer(name, None if copy is None else copy.contiguous())

    def attend(self, x: Tensor, rows: Rows, rope: tuple[Tensor, Tensor], *, prefix: int) -> Tensor:
        """Add the attention of normalised rows to tokens x (B, N, D), in place."""
        B, N, D = x.shape
        qkv = product(rows, Rows(self.qkv, self.qkv_scale), self.qkv_bias, self.dtype)
        y = attention(qkv.view(B, N, 3 * D), *rope, heads=self.heads, prefix=prefix)
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
