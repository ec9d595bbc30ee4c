"""The model as one graph that takes any batch, height and width.

The operations that depend on how large an image is (`model/sizes.py`: `if` it must be padded, `min`
of a window and a map) would be fixed to the size they were traced with. Here each of them is
written without a question, and computes the same:

- Edges are repeated, and cut off again, by gathering rows and columns. That works for zero of them.
- Antialiased resizing is a product with the matrix of its weights; no runtime has torch's kernel.
- "Same" convolutions take the rows they need, zeros outside, instead of asking for an odd one.
- Windows are always whole. A map that is smaller than one is filled up, and what was filled in is
  hidden from attention; at the edges of larger maps the model itself sees repeated rows.
- A size that comes out of a division gets a name of its own (`settled`). With the division inside
  every later shape, tracing would take minutes and guess at equalities it cannot prove.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from adadino.model.detector import Detector
from adadino.model.sizes import Sizes

LARGEST_SIDE = 1 << 16
"""More rows or columns than any image has."""

Model = TypeVar("Model", bound=Detector)


def portable(model: Model) -> Model:
    """A copy of a model that asks no question about sizes; it shares nothing with the model."""
    copy = deepcopy(model).eval().requires_grad_(False)
    for module in copy.modules():
        if hasattr(module, "sizes"):
            module.sizes = PortableSizes()  # type: ignore[assignment]  # nn.Module knows no types
    return copy


class PairGraph(nn.Module):
    """The exported graph: two batches of images in, the probability of change out."""

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
        probability = self.model.probability(first, second, k=self.k)
        return _first(_first(probability, 1, height), 2, width)


class SixBandGraph(nn.Module):
    """The exported graph for tools that feed one image: six bands in, two classes out."""

    def __init__(self, pair: PairGraph) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, image: Tensor) -> Tensor:
        """Before and after as bands (B, 6, H, W) -> unchanged and changed (B, 2, H, W)."""
        changed = self.pair(image[:, :3], image[:, 3:])
        return torch.stack((1 - changed, changed), dim=1)


class PortableSizes(Sizes):
    """`Sizes` without a question; tests/test_export.py holds the two equal."""

    def enlarge(self, images: Tensor, factor: int) -> Tensor:
        """See `Sizes.enlarge`."""
        if factor == 1:
            return images
        return _resize(images, factor * images.shape[-2], factor * images.shape[-1], ends=True)

    def resize(self, x: Tensor, scale: float) -> Tensor:
        """See `Sizes.resize`."""
        if scale == 1:
            return x
        sides = x.shape[-2], x.shape[-1]
        if scale > 1:
            height, width = (int(scale) * side for side in sides)
        else:
            height, width = (_parts(side, round(1 / scale)) for side in sides)
        return _resize(x.float(), height, width).to(x.dtype)

    def windows(self, x: Tensor, side: int) -> tuple[Tensor, Tensor | None]:
        """See `Sizes.windows`."""
        B, C, h, w = x.shape
        m, n = _parts(h, side), _parts(w, side)
        height, width = m * side, n * side
        x = _repeat_edge(_repeat_edge(x, 2, height), 3, width)
        seen = _seen(h, height, side)[:, None] & _seen(w, width, side)
        # Added to zeros of the batch's shape: `expand` would ask whether there is one window.
        mask = torch.where(seen, 0.0, float("-inf")).to(x.dtype) + x.new_zeros(B, height, width)
        mask = mask.reshape(B, m, side, n, side).permute(0, 1, 3, 2, 4)
        # (B, C, m*s, n*s) -> (B, C, m, s, n, s) -> (B, m, n, s, s, C)
        windows = x.reshape(B, C, m, side, n, side).permute(0, 2, 4, 3, 5, 1)
        return windows, mask.reshape(B * m * n, 1, 1, side * side)

    def whole_windows(self, x: Tensor, side: int) -> Tensor:
        """See `Sizes.whole_windows`."""
        B, C, h, w = x.shape
        m, n = _parts(h, side), _parts(w, side)
        height, width = m * side, n * side
        x = _repeat_edge(_repeat_edge(x, 2, height), 3, width)
        rows, columns = (torch.arange(side, device=x.device) for side in (height, width))
        inside = (rows < h)[:, None] & (columns < w)
        x = x * inside.to(x)
        return x.reshape(B, C, m, side, n, side).permute(0, 2, 4, 3, 5, 1)

    def parts(self, size: int, part: int) -> int:
        """See `Sizes.parts`."""
        return _parts(size, part)

    def crop(self, x: Tensor, height: int, width: int) -> Tensor:
        """See `Sizes.crop`."""
        return _first(_first(x, 2, height), 3, width)

    def pad_same(
        self, x: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...]
    ) -> tuple[Tensor, tuple[int, int]]:
        """See `Sizes.pad_same`; kernels are odd, strides one or two."""
        # A stride of one pads both sides alike; a stride of two has one row less before the first
        # of an even number.
        if stride == (1, 1):
            return x, (kernel[0] // 2, kernel[1] // 2)
        for dim, size in zip((2, 3), kernel, strict=True):
            side = x.shape[dim]
            rows = 2 * _parts(side, 2) - 2 + size
            places = torch.arange(rows, device=x.device) + (1 - side % 2) - size // 2
            inside = ((places >= 0) & (places < side)).to(x.dtype)
            x = x.index_select(dim, places.clamp(min=0).clamp(max=side - 1))
            x = x * (inside[:, None] if dim == 2 else inside)
        return x, (0, 0)

    def match(self, x: Tensor, other: Tensor) -> Tensor:
        """See `Sizes.match`; the graph cannot know that both are half the tokens, rounded up."""
        return self.crop(x, other.shape[-2], other.shape[-1])


def _parts(size: int, part: int) -> int:
    """How many parts cover a size; not -(-a // b), which ONNX rounds the other way."""
    return settled((size + part - 1) // part)


def settled(size: int | torch.SymInt) -> Any:
    """A traced size under a name of its own; an ordinary number as it is."""
    if isinstance(size, int):
        return size
    own: Any = torch.scalar_tensor(cast(int, size), dtype=torch.int64).item()
    torch._check(own >= 1)
    torch._check(own <= LARGEST_SIDE)
    return own


def _repeat_edge(x: Tensor, dim: int, size: int) -> Tensor:
    """Repeat the last row or column until there are `size`."""
    return x.index_select(dim, torch.arange(size, device=x.device).clamp(max=x.shape[dim] - 1))


def _first(x: Tensor, dim: int, size: int) -> Tensor:
    """The first rows or columns; a slice would ask whether there are that many."""
    return x.index_select(dim, torch.arange(size, device=x.device))


def _seen(size: int, filled: int, window: int) -> Tensor:
    """Which of the filled-up rows attention may see: all, unless the map is less than a window."""
    return torch.arange(filled) < size + size // window * window


def _resize(x: Tensor, height: int, width: int, *, ends: bool = False) -> Tensor:
    """`F.interpolate(x, size, mode="bilinear", antialias=True, align_corners=ends)`."""
    rows = _weights(x.shape[-2], height, ends=ends).to(x)
    columns = _weights(x.shape[-1], width, ends=ends).to(x)
    return rows @ x @ columns.T


def _weights(size: int, wanted: int, *, ends: bool) -> Tensor:
    """What each old pixel gives to each new one (wanted, size): a triangle, as wide as a pixel.

    With `ends` the step is that of aligned corners, but the pixels are centred as without: torch
    computes it so when it antialiases, and the model was trained with that.
    """
    old, new = (torch.scalar_tensor(n, dtype=torch.float32) for n in (size, wanted))
    step = (old - 1) / (new - 1) if ends else old / new
    centres = (torch.arange(wanted) + 0.5) * step
    distance = (torch.arange(size) + 0.5 - centres[:, None]).abs() / step.clamp(min=1)
    weights = (1 - distance).clamp(min=0)
    return weights / weights.sum(1, keepdim=True)
