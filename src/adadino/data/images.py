"""Images and masks as 8-bit pixels, read with Pillow alone; what cannot be read exactly is refused.

- Every problem is a DataError that names the file: a broken header, a truncated body, 16-bit
  samples (Pillow would drop the low byte of 16-bit RGB without a word, and calls other TIFFs of
  more than 8 bits broken, which they are not), a mask that is not binary.
- Pillow's own guard against decompression bombs is a module global, and stops at 1.8e8 pixels; the
  largest scene in the field (WHU-CD, 32507 x 15354) has 5.0e8. We check the size in the header
  against our own limit, and raise Pillow's only while such a scene is decoded.
- The paper does not say how masks are thresholded. Above 127 is change, since one LEVIR-CD mask
  holds 254; a mask whose highest value is 1 is read as 0 / 1.
"""

from __future__ import annotations

import struct
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import BITSPERSAMPLE, SAMPLEFORMAT, TiffImageFile

from adadino.errors import DataError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff"})

PIXEL_LIMIT = 2**30
"""Twice the largest scene in the field; more, in one file, is a broken or hostile header."""


class _OtherSamplesError(Exception):
    """An intact TIFF whose samples Pillow has no mode for; the message says what they are."""


class _Tiff(TiffImageFile):
    """Pillow's TIFF reader, which also recognises intact files that Pillow calls broken."""

    def _open(self) -> None:
        try:
            super()._open()
        except Exception as error:
            if samples := _other_samples(self):
                raise _OtherSamplesError(samples) from error
            raise


_READERS: dict[bytes, type[ImageFile]] = {
    b"\x89PNG\r\n\x1a\n": PngImageFile,
    b"\xff\xd8\xff": JpegImageFile,
    b"II*\x00": _Tiff,
    b"MM\x00*": _Tiff,
    b"II+\x00": _Tiff,  # BigTIFF
    b"MM\x00+": _Tiff,
}
_MODES = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"})
_KINDS = {2: "signed", 3: "floating point", 5: "complex", 6: "complex"}
_JPEG_COLOUR_NOISE = 8  # a grey mask saved as a colour JPEG: its channels differ by rounding only
_JPEG_GREY_SHARE = 0.05  # ringing sits along edges; a photograph is mostly between black and white
_BIG_IMAGE = threading.Lock()


def is_image(name: str) -> bool:
    """Whether a file name has one of the suffixes that we read, in any case."""
    return Path(name).suffix.lower() in SUFFIXES


def read_image(path: Path | str) -> NDArray[np.uint8]:
    """Read an image as RGB: grey is repeated, a palette expanded, alpha dropped.

    Args:
        path: A PNG, JPEG or TIFF file with 8 bits a channel.

    Returns:
        The pixels, (H, W, 3).

    Raises:
        DataError: If the file is missing, broken, too large or not 8-bit.
    """
    with _opened(path) as file:
        return np.array(open_rgb(file, str(path)))


def read_mask(path: Path | str) -> NDArray[np.bool_]:
    """Read a change mask: true above 127, or above 0 where the highest value is 1.

    Args:
        path: A PNG, JPEG or TIFF file, grey, 1-bit, or RGB with equal channels.

    Returns:
        The mask, (H, W).

    Raises:
        DataError: If the file cannot be read, is coloured, or holds values that are not binary.
    """
    with _opened(path) as file:
        return np.array(open_mask(file, str(path))) > 0


def read_size(path: Path | str) -> tuple[int, int]:
    """Return (height, width) from the header alone; the pixels are not decoded."""
    with _opened(path) as file:
        return open_size(file, str(path))


def open_rgb(file: IO[bytes], name: str) -> Image.Image:
    """Decode an open file to a Pillow RGB image; `name` is what errors call it."""
    image = _decode(file, name)
    # convert() copies even when there is nothing to convert: 2 GB for a whole scene.
    return image if image.mode == "RGB" else image.convert("RGB")


def open_mask(file: IO[bytes], name: str) -> Image.Image:
    """Decode an open file to a one-channel Pillow image of 0 and 255."""
    image = _decode(file, name)
    is_jpeg = isinstance(image, JpegImageFile)
    grey = _grey(image, name, tolerance=_JPEG_COLOUR_NOISE if is_jpeg else 0)
    threshold = _threshold(grey.histogram(), name, is_jpeg=is_jpeg)
    return grey.point([255 if value > threshold else 0 for value in range(256)])


def open_values(file: IO[bytes], name: str) -> NDArray[np.uint8]:
    """The values of a grey image or of a palette (H, W); else red, green and blue (H, W, 3)."""
    image = _decode(file, name)
    if image.mode in ("L", "P", "1"):
        return np.array(image, np.uint8)
    return np.array(image.convert("L" if image.mode == "LA" else "RGB"))


def open_size(file: IO[bytes], name: str) -> tuple[int, int]:
    """Return (height, width) of an open file from its header."""
    image = _header(file, name)
    return image.height, image.width


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn whatever Pillow or zipfile raises on a broken file into a DataError that names it."""
    try:
        yield
    except (
        OSError,
        SyntaxError,  # Pillow's word for a broken PNG
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        EOFError,
        MemoryError,  # a damaged header can ask for gigabytes
        NotImplementedError,
        struct.error,
        zlib.error,
        zipfile.BadZipFile,
    ) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot read {name}: {reason}. Replace it with an intact copy.") from error


def _header(file: IO[bytes], name: str) -> ImageFile:
    with readable(name):
        start = file.read(8)
        file.seek(0)
        reader = next((r for magic, r in _READERS.items() if start.startswith(magic)), None)
        if reader is None:
            raise DataError(
                f"{name} is not a PNG, JPEG or TIFF file (it starts with {start!r}). "
                "Replace it with an intact copy, or convert it to PNG."
            )
        # The reader itself, not Image.open, which would apply Pillow's own limit.
        try:
            image = reader(file)
        except _OtherSamplesError as error:
            raise _not_8_bits(name, str(error)) from error
    if image.width * image.height > PIXEL_LIMIT:
        raise DataError(
            f"{name} claims {image.width} x {image.height} pixels, more than the {PIXEL_LIMIT:,} "
            "that one image may have. If it is genuine, cut it into several images first."
        )
    return image


def _decode(file: IO[bytes], name: str) -> ImageFile:
    image = _header(file, name)
    samples = _other_samples(image)
    # Pillow reads signed bytes as if they were unsigned.
    if image.mode not in _MODES or _has_16_bits(image) or samples == "8-bit signed":
        raise _not_8_bits(name, samples or f"Pillow mode {image.mode}")
    with readable(name), _pillow_limit_raised(image.width * image.height):
        image.load()
    return image


def _has_16_bits(image: ImageFile) -> bool:
    """Whether Pillow would drop the low byte: its mode is RGB, the layout in the file is not."""
    layouts = (tile.args if isinstance(tile.args, tuple) else (tile.args,) for tile in image.tile)
    return any(";16" in str(layout[:1]) for layout in layouts)


def _other_samples(image: ImageFile) -> str:
    """What a TIFF's tags say of its samples, where that is not 8-bit unsigned; else nothing."""
    tags = getattr(image, "tag_v2", {})  # a broken file may have been left before it had any
    bits = [value for value in tags.get(BITSPERSAMPLE, ()) if isinstance(value, int)]
    kinds = [value for value in tags.get(SAMPLEFORMAT, ()) if value != 1]
    kind = _KINDS.get(kinds[0], "undefined") if kinds else "unsigned"
    found = f"{max(bits, default=8)}-bit {kind}"
    return "" if found == "8-bit unsigned" else found


def _not_8_bits(name: str, samples: str) -> DataError:
    return DataError(
        f"{name} does not have 8 bits a channel, unsigned ({samples}). Convert it to 8-bit first, "
        "with one scaling for both dates: gdal_translate -ot Byte -scale LOW HIGH 0 255 IN OUT."
    )


def _grey(image: Image.Image, name: str, tolerance: int) -> Image.Image:
    if image.mode in ("1", "L", "LA"):
        return image if image.mode == "L" else image.convert("L")
    channels = image.convert("RGB").split()
    for other in channels[1:]:
        _, difference = ImageChops.difference(channels[0], other).getextrema()
        if not isinstance(difference, tuple) and difference > tolerance:
            raise DataError(
                f"mask {name} is coloured: its channels differ by up to {difference:.0f}. "
                "Write it as one channel, 0 for unchanged and 255 for changed."
            )
    return channels[0]


def _threshold(histogram: list[int], name: str, *, is_jpeg: bool) -> int:
    """The value above which a pixel counts as changed, or an error if the mask is not binary."""
    values = [value for value, count in enumerate(histogram) if count]
    if is_jpeg:
        grey_share = sum(histogram[64:192]) / sum(histogram)
        if grey_share <= _JPEG_GREY_SHARE:
            return 127
    elif values[-1] <= 1:
        return 0
    # 0, 1 and 255 together: 255 is nodata there, as in our own rasters, and not change.
    elif values[-1] >= 250 and all(v <= 5 or v >= 250 for v in values) and values != [0, 1, 255]:
        return 127
    shown = ", ".join(map(str, values[:8])) + (", ..." if len(values) > 8 else "")
    raise DataError(
        f"mask {name} is not binary: it holds the values {shown}. "
        "Write it with 0 for unchanged and 255 for changed."
    )


@contextmanager
def _opened(path: Path | str) -> Iterator[IO[bytes]]:
    with readable(str(path)), Path(path).open("rb") as file:
        yield file


@contextmanager
def _pillow_limit_raised(pixels: int) -> Iterator[None]:
    """Let Pillow decode an image that passed our own limit; one such image at a time."""
    if Image.MAX_IMAGE_PIXELS is None or pixels <= Image.MAX_IMAGE_PIXELS:
        yield
        return
    with _BIG_IMAGE:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, PIXEL_LIMIT
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = before
