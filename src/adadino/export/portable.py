"""The model as one graph that takes any batch, height and width.

The parts of the model that ask how large an image is (`if` it must be padded, `min` of a window and
a map) would be fixed to the size they were traced with. Here they are written without a question,
and compute the same:

- Edges are repeated, and cut off again, by gathering rows and columns. That works for zero of them.
- Antialiased resizing is a product with the matrix of its weights; no runtime has torch's kernel.
- "Same" convolutions take the rows they need, zeros outside, instead of asking for an odd one.
- Windows are always 16 x 16. A map that is smaller than one is filled up, and what was filled in is
  hidden from attention; at the edges of larger maps the model itself sees repeated rows.
- A size that comes out of a division gets a name of its own (`settled`). With the division inside
  every later shape, tracing would take minutes and guess at equalities it cannot prove.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.model.cpgr import WINDOW, WindowAttention
from adadino.model.detector import Detector
from adadino.model.lite0 import SameConv
from adadino.model.pyramid import Neck
from adadino.model.stream import Evidence, Stream

MOST = 1 << 16
"""More rows or columns than any image has."""


Model = TypeVar("Model", bound=Detector)


def portable(model: Model) -> Model:
    """A copy of a model whose parts ask no questions; it shares nothing with the model."""
    copy = deepcopy(model).eval().requires_grad_(False)
    module: nn.Module
    for module in copy.modules():
        if type(module) in _PARTS:
            module.__class__ = _PARTS[type(module)]
        elif hasattr(type(module), "enlarge"):  # AdaDINO itself, or a peer on its backbone
            whole = type(module)
            module.__class__ = type(whole.__name__, (_Enlarging, whole), {})
    return copy


class Pair(nn.Module):
    """What is exported: two batches of images in, the probability of change out."""

    def __init__(self, model: Detector, *, k: int | None) -> None:
        super().__init__()
        self.model, self.k, self.stride = model, k, model.stride

    def forward(self, before: Tensor, after: Tensor) -> Tensor:
        """RGB in [0, 1] (B, 3, H, W), twice -> probability (B, H, W)."""
        height, width = before.shape[-2], before.shape[-1]
        rows, columns = (_parts(side, self.stride) * self.stride for side in (height, width))
        first, second = (
            _repeat_edge(_repeat_edge(image, 2, rows), 3, columns) for image in (before, after)
        )
        probability = self.model(first, second, k=self.k).logits.softmax(1)[:, 1]
        return _first(_first(probability, 1, height), 2, width)


class SixBands(nn.Module):
    """The same for tools that feed one image: six bands in, two classes out."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, image: Tensor) -> Tensor:
        """Before and after as bands (B, 6, H, W) -> unchanged and changed (B, 2, H, W)."""
        changed = self.pair(image[:, :3], image[:, 3:])
        return torch.stack((1 - changed, changed), dim=1)


class _Enlarging(Detector):
    def enlarge(self, images: Tensor) -> Tensor:
        scale = self.config.scale
        if scale == 1:
            return images
        return _resize(images, scale * images.shape[-2], scale * images.shape[-1], ends=True)


class _PortableNeck(Neck):
    def forward(self, features: Tensor) -> Tensor:
        x = self.reduce(features)
        if self.scale != 1:
            sides = x.shape[-2], x.shape[-1]
            if self.scale > 1:
                height, width = (int(self.scale) * side for side in sides)
            else:
                height, width = (_parts(side, round(1 / self.scale)) for side in sides)
            x = _resize(x.float(), height, width).to(x.dtype)
        x = F.silu(self.norm1(x))
        x = F.silu(self.norm2(self.local(x)))
        return self.widen(x)


class _PortableWindows(WindowAttention):
    def forward(self, x: Tensor) -> Tensor:
        B, C, h, w = x.shape
        m, n = _parts(h, WINDOW), _parts(w, WINDOW)
        height, width, cells = m * WINDOW, n * WINDOW, WINDOW * WINDOW
        x = _repeat_edge(_repeat_edge(x, 2, height), 3, width)
        # (B, C, m*16, n*16) -> (B*m*n, 256, C)
        x = x.reshape(B, C, m, WINDOW, n, WINDOW).permute(0, 2, 4, 3, 5, 1)
        x = x.reshape(B * m * n, cells, C)
        qkv = self.qkv(x).reshape(B * m * n, cells, 3, self.heads, C // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # 3 x (windows, heads, 256, C / heads)
        seen = _seen(h, height)[:, None] & _seen(w, width)
        # Added to zeros of the batch's shape: `expand` would ask whether there is one window.
        bias = torch.where(seen, 0.0, float("-inf")).to(x.dtype) + x.new_zeros(B, height, width)
        bias = bias.reshape(B, m, WINDOW, n, WINDOW).permute(0, 1, 3, 2, 4)
        bias = bias.reshape(B * m * n, 1, 1, cells)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
        x = self.proj(x).reshape(B, m, n, WINDOW, WINDOW, C).permute(0, 5, 1, 3, 2, 4)
        return _first(_first(x.reshape(B, C, height, width), 2, h), 3, w)


class _PortableStream(Stream):
    def forward(self, images: Tensor) -> Evidence:
        # The model hands on float32 images; half-precision convolutions want their own type.
        return super().forward(images.to(next(self.parameters()).dtype))

    def join(self, evidence: Evidence, differences: list[Tensor]) -> list[Tensor]:
        # Both are half the tokens, rounded up; cutting one to the other says so.
        levels = [
            _first(_first(level, 2, d.shape[-2]), 3, d.shape[-1])
            for level, d in zip(evidence.levels, differences, strict=False)
        ]
        return super().join(evidence._replace(levels=levels), differences)


class _PortableSame(SameConv):
    def forward(self, x: Tensor) -> Tensor:
        # Odd kernels: a stride of one pads both sides alike; a stride of two has one row less
        # before the first of an even number.
        if self.stride == (1, 1):
            around = (self.kernel_size[0] // 2, self.kernel_size[1] // 2)
            return F.conv2d(x, self.weight, self.bias, 1, around, 1, self.groups)
        for dim, kernel in zip((2, 3), self.kernel_size, strict=True):
            side = x.shape[dim]
            rows = 2 * _parts(side, 2) - 2 + kernel
            places = torch.arange(rows, device=x.device) + (1 - side % 2) - kernel // 2
            inside = ((places >= 0) & (places < side)).to(x.dtype)
            x = x.index_select(dim, places.clamp(min=0).clamp(max=side - 1))
            x = x * (inside[:, None] if dim == 2 else inside)
        return F.conv2d(x, self.weight, self.bias, 2, 0, 1, self.groups)


_PARTS: dict[type[nn.Module], type[nn.Module]] = {
    Neck: _PortableNeck,
    WindowAttention: _PortableWindows,
    Stream: _PortableStream,
    SameConv: _PortableSame,
}


def _parts(size: int, part: int) -> int:
    """How many parts cover a size; not -(-a // b), which ONNX rounds the other way."""
    return settled((size + part - 1) // part)


def settled(size: int | torch.SymInt) -> Any:
    """A traced size under a name of its own; an ordinary number as it is."""
    if isinstance(size, int):
        return size
    own: Any = torch.scalar_tensor(cast(int, size), dtype=torch.int64).item()
    torch._check(own >= 1)
    torch._check(own <= MOST)
    return own


def _repeat_edge(x: Tensor, dim: int, size: int) -> Tensor:
    """Repeat the last row or column until there are `size`."""
    return x.index_select(dim, torch.arange(size, device=x.device).clamp(max=x.shape[dim] - 1))


def _first(x: Tensor, dim: int, size: int) -> Tensor:
    """The first rows or columns; a slice would ask whether there are that many."""
    return x.index_select(dim, torch.arange(size, device=x.device))


def _seen(size: int, filled: int) -> Tensor:
    """Which of the filled-up rows attention may see: all, unless the map is less than a window."""
    return torch.arange(filled) < size + size // WINDOW * WINDOW


def _resize(x: Tensor, height: int, width: int, *, ends: bool = False) -> Tensor:
    """`F.interpolate(x, size, mode="bilinear", antialias=True, align_corners=ends)`."""
    rows = _weights(x.shape[-2], height, ends=ends).to(x)
    columns = _weights(x.shape[-1], width, ends=ends).to(x)
    return rows @ x @ columns.T


def _weights(size: int, wanted: int, *, ends: bool) -> Tensor:
    """What each old pixel gives to each new one (wanted, size): a triangle, as wide as a pixel.

    With `ends` the step is that of aligned corners, but the pixels are centred as without. So torch
    does it when it antialiases, and so the model was trained.
    """
    old, new = (torch.scalar_tensor(n, dtype=torch.float32) for n in (size, wanted))
    step = (old - 1) / (new - 1) if ends else old / new
    centres = (torch.arange(wanted) + 0.5) * step
    distance = (torch.arange(size) + 0.5 - centres[:, None]).abs() / step.clamp(min=1)
    weights = (1 - distance).clamp(min=0)
    return weights / weights.sum(1, keepdim=True)
