"""The frozen FFN with its weights cut into chunks that can be gathered as they lie.

- An input chunk is a block of rows (of both projections, when gated, so that one product does).
- An output chunk is a block of rows, too: the projection is kept transposed, (C, size, D), and
  LayerScale is folded into it. In eight bits it is (D, C, size) instead, because the tensor cores
  take eight-bit operands only with the summed dimension innermost; a gathered run is still `size`
  bytes long.
- The output projection adds into the tokens in place; its bias travels as the tokens' `shift`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from adadino.engine.ops import on_gpu
from adadino.engine.ops.activation import activate
from adadino.engine.ops.gather import Chunks, gather
from adadino.engine.rows import Kind, Rows, product, quantize
from adadino.model.backbone import Block

EPILOGUE = True
"""GELU inside the product (cuBLASLt, its tanh form) instead of a kernel of its own, in bf16."""


class Chosen(NamedTuple):
    """The weights of the chunks that a batch executes."""

    up: Rows
    """(N, D)"""
    bias: Tensor
    """(N,)"""
    down: Rows
    """(K, D); in eight bits (D, K)"""


class FFN(nn.Module):
    """The FFN of one block."""

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
        self._keep("up", up.values if kind else up.values.to(dtype))
        self._keep("up_scale", up.scale)
        self._keep("bias", bias.to(dtype))
        if kind:
            rows = quantize(down.flatten(1), kind)
            self._keep("down", rows.values.view(down.shape))
            self._keep("down_scale", rows.scale)
        else:
            self._keep("down", down.permute(1, 2, 0).to(dtype))
            self._keep("down_scale", None)

    def _keep(self, name: str, value: Tensor | None) -> None:
        # A copy even where nothing was converted: the model may be trained on.
        copy = (
            None if value is None else value.detach().clone(memory_format=torch.contiguous_format)
        )
        self.register_buffer(name, copy)

    def choose(self, keep: Tensor | None) -> Chosen:
        """The weights of the kept chunks (k,), gathered; None is all of them, as they lie."""
        chunks = Chunks(self.up, self.up_scale, self.bias, self.down)
        up, scale, bias, down = chunks if keep is None else gather(chunks, keep)
        up_rows = Rows(up.flatten(0, 1), None if scale is None else scale.flatten())
        flat = down.flatten(1) if self.kind else down.flatten(0, 1)
        return Chosen(up_rows, bias.flatten(), Rows(flat, self.down_scale))

    def forward(self, x: Tensor, rows: Rows, chosen: Chosen) -> Tensor:
        """Add the FFN of normalised rows (R, D) to the tokens x, in place."""
        fused = EPILOGUE and not (self.gated or self.kind) and self.dtype == torch.bfloat16
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
