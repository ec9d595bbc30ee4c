"""Images without labels for pretraining: tiles of an archive, and views cut from the tiles.

The archive may be larger than memory: sizes are read first, so that only the tiles that are kept,
and one image, are held.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from adadino.data.augment import jitter
from adadino.data.images import is_image, read_image, read_size
from adadino.data.synthetic import make_pair
from adadino.errors import DataError
from adadino.training.pretrain.config import PretrainConfig


def read_tiles(config: PretrainConfig) -> Tensor:
    """Cut every image of the archive into tiles (N, 3, side, side); labels are left out.

    A tile has twice the side of a view, so that a view can be cut out of it at any zoom.

    Raises:
        DataError: There is nothing to cut.
    """
    folders, side, synthetic = config.images, 2 * config.size, config.synthetic
    files = sorted(
        path
        for folder in folders
        for path in Path(folder).rglob("*")
        if is_image(path.name) and not path.name.startswith(".") and path.parent.name != "label"
    )
    if not files and not synthetic:
        where = ", ".join(folders) or "no folder"
        raise DataError(f"there are no images in {where}; give --images DIR, or --synthetic N.")
    corners = [_corners(*read_size(path), side) for path in files]
    total = sum(map(len, corners)) + 2 * synthetic
    keep = np.unique(np.linspace(0, total - 1, min(config.limit, total)).astype(int))
    tiles, first = [], 0
    for path, places in zip(files, corners, strict=True):
        wanted = keep[(keep >= first) & (keep < first + len(places))] - first
        if len(wanted):
            image = _at_least(read_image(path), side)
            for row, column in (places[i] for i in wanted):
                tile = image[row : row + side, column : column + side]
                tiles.append(tile.transpose(2, 0, 1).copy())
        first += len(places)
    for index in keep[keep >= first] - first:
        # Seeds of their own: no scene of a dataset, test or demonstration is seen here.
        pair = make_pair(770_000_000 + int(index) // 2, side)
        tiles.append((pair.after if index % 2 else pair.before).transpose(2, 0, 1))
    return torch.from_numpy(np.stack(tiles))


def _corners(height: int, width: int, side: int) -> list[tuple[int, int]]:
    """Rows and columns where tiles begin that cover an image; the last ones reach back."""
    return [
        (min(top, max(height - side, 0)), min(left, max(width - side, 0)))
        for top in range(0, height, side)
        for left in range(0, width, side)
    ]


def _at_least(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """An image, mirrored where it is smaller than a tile."""
    missing = [max(side - n, 0) for n in image.shape[:2]]
    if not any(missing):
        return image
    return np.pad(image, [(0, missing[0]), (0, missing[1]), (0, 0)], mode="symmetric")


def cut_views(tiles: Tensor, config: PretrainConfig, generator: torch.Generator) -> Tensor:
    """Draw a batch of views, cut out, flipped and turned: (batch, 3, size, size) in [0, 1].

    Args:
        tiles: (N, 3, H, W) uint8; a tile may give several views.
        config: Says how many views, how large, and how large their cut-outs.
        generator: The only source of randomness, on the tiles' device.
    """
    count, size, zoom = config.batch, config.size, config.zoom

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=tiles.device)

    chosen = tiles[(draw(count) * len(tiles)).long()].float().div_(255)
    side = zoom[0] + (zoom[1] - zoom[0]) * draw(count)
    sign = torch.where(draw(count, 2) < 0.5, -1.0, 1.0) * side[:, None]
    centre = (2 * draw(count, 2) - 1) * (1 - side[:, None])
    turned = draw(count) < 0.5
    zero = torch.zeros_like(side)
    x = torch.where(turned[:, None], torch.stack((zero, sign[:, 0]), 1), F.pad(sign[:, :1], (0, 1)))
    y = torch.where(turned[:, None], F.pad(sign[:, 1:], (0, 1)), torch.stack((zero, sign[:, 1]), 1))
    theta = torch.cat((torch.stack((x, y), 1), centre[:, :, None]), dim=2)  # (B, 2, 3)
    grid = F.affine_grid(theta, [count, 3, size, size], align_corners=False)
    return F.grid_sample(chosen, grid, padding_mode="reflection", align_corners=False)


def enlarge(views: Tensor, scale: float) -> Tensor:
    """The views at the encoder's size, not normalised: the teacher scales them itself.

    Not by the model's own enlargement, whose aligned corners lie up to a quarter of a pixel off: a
    teacher of convolutions was trained on pixels with centres.
    """
    if scale == 1:
        return views
    images = F.interpolate(views, scale_factor=float(scale), mode="bilinear", align_corners=False)
    return images.contiguous(memory_format=torch.channels_last)


def recolour(views: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Change brightness, contrast and saturation of every view, in an order of its own."""
    device, count = views.device, len(views)
    factors = 1 + strength * (2 * torch.rand(count, 3, generator=generator, device=device) - 1)
    order = torch.rand(count, 3, generator=generator, device=device).argsort(dim=1)
    return jitter(views.clone()[:, None], factors, order)[:, 0]
