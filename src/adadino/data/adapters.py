"""Pairs of other libraries' datasets: torchgeo's, and those of Hugging Face's `datasets`.

`OtherPairs` gives items as `PairFolder` does, for a loader of one's own and a plain Trainer.
`write_folder` writes them as `A`, `B` and `label`, which every command takes. Neither library is
imported: what is read is a sample, a mapping from names to images.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from adadino.errors import DataError
from adadino.files import atomic


class Samples(Protocol):
    """What both libraries' datasets are: samples by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Mapping[str, Any]: ...


class Columns(NamedTuple):
    """Under which names a sample holds its images; `pair` holds both dates in one, (2, C, H, W)."""

    before: str
    after: str
    label: str
    pair: str | None = None


TORCHGEO = Columns("image1", "image2", "mask", "image")
"""torchgeo's change detection (LEVIRCD, LEVIRCDPlus, S2Looking): two images, or both stacked."""
KNOWN = (
    TORCHGEO,
    Columns("imageA", "imageB", "label"),
    Columns("image_a", "image_b", "label"),
    Columns("A", "B", "label"),
    Columns("t1_image", "t2_image", "mask"),
    Columns("before", "after", "mask"),
)
"""Names that are in use."""


class OtherPairs(Dataset[tuple[Tensor, Tensor, Tensor, int]]):
    """A dataset of torchgeo or Hugging Face as pairs.

    An item is `(before, after, mask, index)` as of `PairFolder`: uint8 (3, H, W) twice and uint8
    (H, W) of 0 and 1.

    Args:
        samples: The dataset: torchgeo's, or one split of Hugging Face's.
        columns: The names of its images; by default those among `KNOWN` that the first sample has.

    Raises:
        DataError: The samples have no such names.
    """

    def __init__(self, samples: Samples, columns: Columns | None = None) -> None:
        self.samples = samples
        first = samples[0]
        fits = [one for one in ([columns] if columns else KNOWN) if _has(first, one)]
        if not fits:
            raise DataError(
                f"a sample holds {', '.join(map(str, first))}, and no pair under known names; say "
                'which they are: columns=Columns("BEFORE", "AFTER", "LABEL").'
            )
        self.columns = fits[0]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor, int]:
        sample, names = self.samples[index], self.columns
        if names.pair is not None and names.pair in sample:
            before, after = sample[names.pair]
        else:
            before, after = sample[names.before], sample[names.after]
        images = [_rgb(image, index) for image in (before, after)]
        mask = _mask(sample[names.label], index)
        if not images[0].shape[1:] == images[1].shape[1:] == mask.shape:
            sizes = [tuple(t.shape[-2:]) for t in (*images, mask)]
            raise DataError(f"sample {index} has images and mask of different sizes: {sizes}.")
        return images[0], images[1], mask, index


def write_folder(pairs: OtherPairs, folder: Path | str, *, prefix: str = "") -> int:
    """Write pairs as `FOLDER/{A,B,label}/NAME.png`; files that are there already are kept.

    Args:
        pairs: The pairs.
        folder: For example `data/levir/train`.
        prefix: What the names begin with, before the sample's number.

    Returns:
        How many pairs there are.
    """
    for index in range(len(pairs)):
        paths = [Path(folder) / role / f"{prefix}{index:06d}.png" for role in ("A", "B", "label")]
        if all(path.exists() for path in paths):
            continue
        before, after, mask, _ = pairs[index]
        arrays = (before.permute(1, 2, 0), after.permute(1, 2, 0), 255 * mask)
        for path, array in zip(paths, arrays, strict=True):
            with atomic(path) as part:
                Image.fromarray(array.numpy()).save(part)
    return len(pairs)


def _has(sample: Mapping[str, Any], names: Columns) -> bool:
    both = names.before in sample and names.after in sample
    return names.label in sample and (both or names.pair in sample)


def _array(image: Any) -> NDArray[Any]:
    return image.numpy() if isinstance(image, Tensor) else np.asarray(image)


def _rgb(image: Any, index: int) -> Tensor:
    """An image of Pillow (H, W, C) or a tensor (C, H, W) in 0..255 as uint8 (3, H, W)."""
    pixels = _array(image.convert("RGB")) if isinstance(image, Image.Image) else _array(image)
    plain = pixels.ndim == 3 and pixels.shape[0] not in (3, 4) and pixels.shape[-1] in (3, 4)
    if plain or isinstance(image, Image.Image):
        pixels = np.moveaxis(pixels, -1, 0)
    if pixels.ndim != 3 or pixels.shape[0] < 3 or not _is_8_bit(pixels):
        raise DataError(
            f"sample {index} has an image {pixels.shape} of {pixels.dtype} up to {pixels.max()}; "
            "pairs are RGB with values from 0 to 255: leave torchgeo's transforms out."
        )
    return torch.from_numpy(np.ascontiguousarray(pixels[:3].round()).astype(np.uint8))


def _is_8_bit(pixels: NDArray[Any]) -> bool:
    """Whether values lie in 0..255; floats up to 1 are scaled already, and not what is meant."""
    low, high = float(pixels.min()), float(pixels.max())
    scaled = np.issubdtype(pixels.dtype, np.floating) and 0 < high <= 1
    return low >= 0 and high <= 255 and not scaled


def _mask(label: Any, index: int) -> Tensor:
    """A mask of 0 and 1, or of 0 and 255, as uint8 (H, W) of 0 and 1."""
    grey = _array(label.convert("L")) if isinstance(label, Image.Image) else _array(label).squeeze()
    values = sorted(set(np.unique(grey).tolist()))
    if grey.ndim != 2 or not (set(values) <= {0, 1} or set(values) <= {0, 255}):
        raise DataError(
            f"sample {index} has a mask {grey.shape} with the values {values[:8]}; masks have two "
            "dimensions and hold 0 and 1, or 0 and 255."
        )
    return torch.from_numpy((grey > 0).astype(np.uint8))
