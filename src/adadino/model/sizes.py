"""Every operation of the model that depends on how large an image or a map is.

The modules call these through their attribute `sizes`, so that an exported model can have them
written without a question about the size: mirrored in `export/portable.py`, method by method.
tests/test_export.py holds the two equal.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def level_size(grid: tuple[int, int], scale: float) -> tuple[int, int]:
    """Rows and columns of a pyramid level; halves round up, and a level has at least one cell."""
    if scale >= 1:
        return int(scale) * grid[0], int(scale) * grid[1]
    parts = round(1 / scale)
    return -(-grid[0] // parts), -(-grid[1] // parts)


class Sizes:
    """Pad, cut, crop and resize (B, C, h, w)."""

    def enlarge(self, images: Tensor, factor: int) -> Tensor:
        """Enlarge images with the paper's interpolation (App. A), in float32."""
        if factor == 1:
            return images
        size = [side * factor for side in images.shape[-2:]]
        return F.interpolate(images, size, mode="bilinear", align_corners=True, antialias=True)

    def resize(self, x: Tensor, scale: float) -> Tensor:
        """Resize a map to a pyramid level: `scale` times its sides."""
        if scale == 1:
            return x
        size = level_size((x.shape[-2], x.shape[-1]), scale)
        # float32: the antialiased kernel does not exist in bf16 on every device.
        return F.interpolate(x.float(), size, mode="bilinear", antialias=True).to(x.dtype)

    def windows(self, x: Tensor, side: int) -> tuple[Tensor, Tensor | None]:
        """Cut a map into windows.

        Args:
            x: The map (B, C, h, w).
            side: Rows and columns of a window. A map that is smaller is one window.

        Returns:
            The windows (B, m, n, s, t, C), and what is added to attention's scores, if anything.
        """
        s, t = min(side, x.shape[-2]), min(side, x.shape[-1])
        # Whole windows by repeating the edge: what is added resembles what is there, so no mask.
        bottom, right = -x.shape[-2] % s, -x.shape[-1] % t
        if bottom or right:
            x = F.pad(x, (0, right, 0, bottom), mode="replicate")
        # (B, C, m*s, n*t) -> (B, C, m, s, n, t) -> (B, m, n, s, t, C)
        return x.unflatten(3, (-1, t)).unflatten(2, (-1, s)).permute(0, 2, 4, 3, 5, 1), None

    def whole_windows(self, x: Tensor, side: int) -> Tensor:
        """Cut a map (B, C, h, w) into windows (B, m, n, side, side, C), zeros beyond its edge."""
        bottom, right = -x.shape[-2] % side, -x.shape[-1] % side
        if bottom or right:
            x = F.pad(x, (0, right, 0, bottom))
        return x.unflatten(3, (-1, side)).unflatten(2, (-1, side)).permute(0, 2, 4, 3, 5, 1)

    def parts(self, size: int, part: int) -> int:
        """How many parts cover a size."""
        return -(-size // part)

    def crop(self, x: Tensor, height: int, width: int) -> Tensor:
        """The first rows and columns of a map."""
        return x[..., :height, :width]

    def pad_same(
        self, x: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...]
    ) -> tuple[Tensor, tuple[int, int]]:
        """Pad the input of a convolution to ceil(size / stride) outputs, the odd pixel at the end.

        Returns:
            The map, and the padding that the convolution itself adds on both sides: where that is
            enough the map is not copied.
        """
        pads: list[int] = []
        for side, size, step in zip(x.shape[:-3:-1], kernel[::-1], stride[::-1], strict=True):
            total = max((-(-side // step) - 1) * step + size - side, 0)
            pads += [total // 2, total - total // 2]  # last dimension first, as F.pad wants it
        if pads[0] == pads[1] and pads[2] == pads[3]:
            return x, (pads[2], pads[0])
        return F.pad(x, pads), (0, 0)

    def match(self, x: Tensor, other: Tensor) -> Tensor:
        """A map as large as another one, which it is already."""
        return x
