"""Images of more bands than red, green and blue: GeoTIFF and NumPy files of any sample type.

A GeoTIFF's bands are found by their descriptions, as in prediction; a NumPy file holds exactly the
model's bands, (bands, height, width). Values become 0..1 by what the configuration says. Its
percentiles are those of the training images, both dates together, found once before training.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adadino.bands import PERCENTILES, BandsConfig, match_bands
from adadino.errors import DataError, InputError

ARRAY = ".npy"
SAMPLE = 200_000
"""Pixels of an image that its percentiles are taken from."""


def is_array(name: str) -> bool:
    """Whether a file is a NumPy array by its name."""
    return Path(name).suffix.lower() == ARRAY


def read_bands(path: Path | str, config: BandsConfig) -> NDArray[np.float32]:
    """Read an image in the model's bands.

    Returns:
        (N, H, W) in 0..1; a pixel that is no number, or nodata in every band, is 0.

    Raises:
        DataError: It cannot be read, or lacks a band.
    """
    raw = read_raw(path, config).astype(np.float32)
    low, high = (np.array(each, np.float32)[:, None, None] for each in config.limits)
    empty = ~np.isfinite(raw).all(axis=0) | (raw == 0).all(axis=0)
    scaled = np.clip((raw - low) / (high - low), 0.0, 1.0)
    scaled[:, empty] = 0
    return np.ascontiguousarray(scaled, dtype=np.float32)


def read_raw(path: Path | str, config: BandsConfig) -> NDArray[Any]:
    """The values as they are stored, (N, H, W)."""
    if is_array(str(path)):
        return np.array(_array(path, config))
    with _opened(path) as dataset:
        colours = [colour.name for colour in dataset.colorinterp]
        try:
            numbers, _ = match_bands(config, dataset.descriptions, colours, str(path))
            values: NDArray[Any] = dataset.read(list(numbers))
        except InputError as error:
            raise DataError(str(error)) from error
        except Exception as error:  # rasterio's and GDAL's own
            raise _unreadable(path, error) from error
        if dataset.nodata is not None:
            values = np.where((values == dataset.nodata).all(axis=0), 0, values)
    if np.iscomplexobj(values):
        raise DataError(f"{path} holds complex values; convert it to amplitudes.")
    return values


def band_size(path: Path | str, config: BandsConfig) -> tuple[int, int]:
    """Height and width from the header."""
    if is_array(str(path)):
        _, height, width = _array(path, config).shape
        return height, width
    with _opened(path) as dataset:
        return dataset.height, dataset.width


def with_limits(config: BandsConfig, images: Iterable[Path]) -> BandsConfig:
    """The bands with what becomes 0 and 1 in them: percentiles of images, if nothing says it.

    Raises:
        DataError: A band has one value everywhere.
    """
    if config.is_scaled:
        return config
    kept = []
    for path in images:
        pixels = read_raw(path, config).reshape(config.count, -1)
        pixels = pixels[:, :: max(1, pixels.shape[1] // SAMPLE)].astype(np.float64)
        kept.append(pixels[:, np.isfinite(pixels).all(axis=0) & pixels.any(axis=0)])
    low, high = np.percentile(np.concatenate(kept, axis=1), PERCENTILES, axis=1)
    for name, first, last in zip(config.names, low, high, strict=True):
        if not first < last:
            raise DataError(
                f"band {name} has the value {first:g} nearly everywhere in the training images; "
                "leave it out of bands.names, or give bands.low and bands.high."
            )
    numbers = [tuple(round(float(value), 6) for value in each) for each in (low, high)]
    return dataclasses.replace(config, low=numbers[0], high=numbers[1])


def _array(path: Path | str, config: BandsConfig) -> NDArray[Any]:
    try:
        values: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, error) from error
    if values.ndim != 3 or len(values) != config.count or values.dtype.kind not in "uif":
        raise DataError(
            f"{path} holds {values.dtype} of shape {values.shape}; the model takes numbers "
            f"({config.count}, height, width), the bands {config.text}."
        )
    return values


def _opened(path: Path | str) -> Any:
    with quietly(path):
        import rasterio

        return rasterio.open(path)


@contextmanager
def quietly(path: Path | str) -> Iterator[None]:
    """Open or write an image without coordinates, which is welcome; name it if that fails."""
    from rasterio.errors import NotGeoreferencedWarning, RasterioError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            yield
    except (RasterioError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path | str, error: Exception) -> DataError:
    reason = " ".join(str(error).split()).rstrip(".")
    return DataError(f"cannot read {path}: {reason}. Replace it with an intact copy.")
