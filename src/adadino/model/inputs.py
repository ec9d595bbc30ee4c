"""Turn images as people have them (arrays, PIL images, paths) into what the model takes."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from adadino.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

ImageLike: TypeAlias = "NDArray[np.generic] | Tensor | Image | str | PathLike[str]"


def to_tensor(image: ImageLike, name: str, bands: int = 3) -> Tensor:
    """Turn one image into a float32 tensor (bands, H, W) in [0, 1].

    Args:
        image: A path; a PIL image; or an array or tensor, (H, W, 3) or (3, H, W), uint8 in 0..255
            or floating point in 0..1.
        name: What to call it in a message: "before" or "after".
        bands: How many the model takes; of others than 3, arrays (bands, H, W) alone are taken.

    Raises:
        InputError: It cannot be read, has the wrong shape or type, or holds NaN or infinity.
    """
    if isinstance(image, str | PathLike):
        array = _read(Path(image), name)
    elif isinstance(image, Tensor):
        array = image.detach().cpu()
    elif hasattr(image, "convert"):
        array = torch.from_numpy(np.array(image.convert("RGB")))
    else:
        try:
            array = torch.from_numpy(np.ascontiguousarray(image))
        except TypeError as error:
            kind = getattr(image, "dtype", type(image).__name__)
            raise InputError(f"{name} is {kind}: give uint8 or floating-point pixels.") from error
    return _checked(array, name, bands)


def check_pair(before: Tensor, after: Tensor, bands: int = 3) -> None:
    """Refuse two batches (B, bands, H, W) that the model cannot compare, naming what differs."""
    for name, image in (("before", before), ("after", after)):
        if image.ndim != 4 or image.shape[1] != bands:
            raise InputError(
                f"{name} has shape {tuple(image.shape)}: the model takes (batch, {bands}, height, "
                "width)."
            )
        if not image.is_floating_point():
            raise InputError(f"{name} is {image.dtype}: the model takes floating point in 0..1.")
    if before.shape != after.shape:
        raise InputError(
            f"before is {tuple(before.shape)} and after {tuple(after.shape)}: both dates must have "
            "the same size. Resample one onto the other's grid first."
        )
    if 0 in before.shape:
        raise InputError(f"the images are empty: {tuple(before.shape)}; give at least one pixel.")


def pad_to_stride(images: Tensor, stride: int) -> Tensor:
    """Pad images (B, 3, H, W) until both sides are multiples of the stride.

    Padding repeats the bottom and right edges, which works from a single pixel up and puts no line
    of another colour beside the image.
    """
    bottom, right = (-size % stride for size in images.shape[-2:])
    if bottom or right:
        images = F.pad(images, (0, right, 0, bottom), mode="replicate")
    return images


def _read(path: Path, name: str) -> Tensor:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return torch.from_numpy(np.array(image.convert("RGB")))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot read {name} image {path}: {reason}. Give a PNG, JPEG or 8-bit TIFF; "
            "for scenes there is predict_scene."
        ) from error


def _checked(image: Tensor, name: str, bands: int) -> Tensor:
    if bands != 3 and (image.ndim != 3 or image.shape[0] != bands):
        raise InputError(
            f"{name} has shape {tuple(image.shape)}: the model takes its {bands} bands in 0..1, "
            f"({bands}, H, W)."
        )
    if bands == 3 and (image.ndim != 3 or 3 not in (image.shape[0], image.shape[-1])):
        raise InputError(
            f"{name} has shape {tuple(image.shape)}: give three channels, (H, W, 3) or (3, H, W)."
        )
    if 0 in image.shape:
        raise InputError(f"{name} is empty: shape {tuple(image.shape)}; give at least one pixel.")
    if (
        bands == 3 and image.shape[-1] == 3
    ):  # a 3 x W x 3 image is taken as H x W x 3, as Pillow gives it
        image = image.permute(2, 0, 1)
    if image.dtype == torch.uint8:
        return image.float() / 255
    if not image.is_floating_point():
        raise InputError(f"{name} is {image.dtype}: give uint8 (0..255) or floating point (0..1).")
    if not bool(image.isfinite().all()):
        raise InputError(f"{name} holds NaN or infinity: fill those pixels first.")
    low, high = float(image.min()), float(image.max())
    if low < 0 or high > 1:
        raise InputError(
            f"{name} ranges from {low:g} to {high:g}: floating-point pixels must lie in 0..1."
        )
    return image.float()
