"""Images and masks: every kind that is accepted, and every kind that must be refused."""

from __future__ import annotations

import contextlib
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import rasterio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from adadino.data import images
from adadino.data.images import is_image, read_image, read_mask, read_size
from adadino.errors import DataError

PLAIN = "ignore::rasterio.errors.NotGeoreferencedWarning"
RGB = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


def save(path: Path, array: NDArray[np.generic], mode: str | None = None) -> Path:
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(path)
    return path


def png(path: Path, width: int, height: int, bits: int, colour: int, rows: bytes) -> Path:
    """Write a PNG by hand, for the kinds that Pillow does not write."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
    return path


@pytest.mark.parametrize("suffix", [".png", ".tif", ".TIFF", ".PNG"])
def test_rgb_comes_back_bit_for_bit(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path / f"x{suffix}", RGB)
    read = read_image(path)
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, RGB)
    assert read_size(path) == (5, 7)
    read[0, 0] = 0  # writable, for augmentation in place


def test_grey_is_repeated_alpha_dropped_palette_expanded(tmp_path: Path) -> None:
    grey = read_image(save(tmp_path / "grey.png", RGB[..., 0]))
    np.testing.assert_array_equal(grey, np.repeat(RGB[..., :1], 3, axis=2))

    rgba = np.dstack([RGB, np.full(RGB.shape[:2], 17, np.uint8)])
    np.testing.assert_array_equal(read_image(save(tmp_path / "rgba.png", rgba)), RGB)

    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putdata([1, 0])
    palette.save(tmp_path / "palette.png")
    assert read_image(tmp_path / "palette.png").tolist() == [[[40, 50, 60], [10, 20, 30]]]


def test_16_bit_grey_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "deep.tif", RGB[..., 0].astype(np.uint16) * 256)
    with pytest.raises(DataError, match=r"deep\.tif does not have 8 bits a channel"):
        read_image(path)


def test_16_bit_rgb_is_refused_although_pillow_would_narrow_it(tmp_path: Path) -> None:
    path = png(tmp_path / "deep.png", 2, 1, bits=16, colour=2, rows=b"\0" + bytes(range(12)))
    assert Image.open(path).mode == "RGB"
    with pytest.raises(DataError, match=r"deep\.png does not have 8 bits a channel"):
        read_image(path)


@pytest.mark.filterwarnings(PLAIN)
@pytest.mark.parametrize(
    ("kind", "bands", "said"),
    [
        (np.uint16, 1, "16-bit unsigned"),
        (np.uint16, 2, "16-bit unsigned"),
        (np.uint16, 3, "16-bit unsigned"),
        (np.uint16, 8, "16-bit unsigned"),
        (np.int16, 3, "16-bit signed"),
        (np.float32, 1, "32-bit floating point"),
        (np.float32, 3, "32-bit floating point"),
        (np.float64, 1, "64-bit floating point"),
        (np.int8, 1, "8-bit signed"),  # Pillow would take -1 for 255
        (np.int8, 3, "8-bit signed"),
    ],
)
def test_an_intact_tiff_of_other_samples_is_to_be_converted_not_replaced(
    tmp_path: Path, kind: type[np.generic], bands: int, said: str
) -> None:
    path = tmp_path / "scene.tif"
    colour = {} if bands < 3 else {"photometric": "RGB"}
    with rasterio.open(
        path, "w", driver="GTiff", width=7, height=5, count=bands, dtype=kind, **colour
    ) as file:
        file.write(np.ones((bands, 5, 7), kind))
    with pytest.raises(DataError) as error:
        read_image(path)
    assert f"scene.tif does not have 8 bits a channel, unsigned ({said})" in str(error.value)
    assert "gdal_translate -ot Byte -scale LOW HIGH 0 255" in str(error.value)
    assert "Replace it" not in str(error.value)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL", PLAIN)
@pytest.mark.parametrize("kind", [np.uint16, np.uint8])
def test_a_tiff_without_its_directory_is_broken_whatever_it_held(
    tmp_path: Path, kind: type[np.generic]
) -> None:
    path = tmp_path / "cut.tif"
    with rasterio.open(path, "w", driver="GTiff", width=64, height=64, count=3, dtype=kind) as file:
        file.write(np.ones((3, 64, 64), kind))
    path.write_bytes(path.read_bytes()[:9])
    with pytest.raises(DataError, match=r"cut\.tif.*intact copy"):
        read_image(path)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif"])
def test_truncated_file_is_refused_by_name(tmp_path: Path, suffix: str) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    path = save(tmp_path / f"cut{suffix}", noise)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(DataError, match=rf"cut\{suffix}.*intact copy"):
        read_image(path)


def test_missing_and_foreign_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.png: No such file"):
        read_image(tmp_path / "nowhere.png")
    (tmp_path / "text.png").write_text("not an image")
    with pytest.raises(DataError, match=r"text\.png is not a PNG, JPEG or TIFF"):
        read_image(tmp_path / "text.png")
    assert not is_image("a.gif")


def test_a_header_that_claims_too_many_pixels_is_refused_before_decoding(tmp_path: Path) -> None:
    path = png(tmp_path / "bomb.png", 60_000, 60_000, bits=8, colour=2, rows=b"")
    with pytest.raises(DataError, match=r"bomb\.png claims 60000 x 60000 pixels"):
        read_image(path)


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_scenes_above_pillows_limit_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    path = save(tmp_path / f"scene{suffix}", RGB)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3)
    np.testing.assert_array_equal(read_image(path), RGB)
    assert Image.MAX_IMAGE_PIXELS == 3
    monkeypatch.setattr(images, "PIXEL_LIMIT", 34)
    with pytest.raises(DataError, match="more than the 34"):
        read_image(path)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), suffix=st.sampled_from([".png", ".jpg", ".tif"]))
def test_damage_is_a_data_error_or_an_image_never_another_exception(
    tmp_path: Path, data: st.DataObject, suffix: str
) -> None:
    path = save(tmp_path / f"damaged{suffix}", RGB)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    with contextlib.suppress(DataError):
        assert read_image(path).ndim == 3


@pytest.mark.parametrize(
    ("values", "changed"),
    [
        ([0, 255], [False, True]),
        ([0, 254], [False, True]),  # one LEVIR-CD mask
        ([5, 250], [False, True]),
        ([0, 1], [False, True]),
        ([0, 0], [False, False]),
        ([1, 1], [True, True]),
        ([255, 255], [True, True]),
    ],
)
def test_binary_masks(tmp_path: Path, values: list[int], changed: list[bool]) -> None:
    mask = read_mask(save(tmp_path / "m.png", np.array([values], np.uint8)))
    assert mask.dtype == np.bool_
    assert mask.tolist() == [changed]


@pytest.mark.parametrize(
    "values", [[0, 128], [0, 2], [0, 1, 2], [0, 6, 255], [0, 249], [0, 1, 255], [0, 127, 255]]
)
def test_masks_that_are_not_binary_are_refused_with_their_values(
    tmp_path: Path, values: list[int]
) -> None:
    path = save(tmp_path / "classes.png", np.array([values], np.uint8))
    with pytest.raises(DataError, match=rf"classes\.png.*values {', '.join(map(str, values))}\."):
        read_mask(path)


def test_one_bit_rgb_and_palette_masks(tmp_path: Path) -> None:
    values = np.array([[0, 255], [255, 0]], np.uint8)
    for name, mode in (("bit.png", "1"), ("rgb.png", "RGB"), ("rgba.tif", "RGBA"), ("p.png", "P")):
        assert read_mask(save(tmp_path / name, values, mode)).tolist() == (values > 0).tolist()


def test_coloured_mask_is_refused(tmp_path: Path) -> None:
    red = np.zeros((2, 2, 3), np.uint8)
    red[0, 0, 0] = 255
    with pytest.raises(DataError, match=r"red\.png is coloured.*255"):
        read_mask(save(tmp_path / "red.png", red))


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_jpeg_mask_may_ring_around_its_edges(tmp_path: Path, mode: str) -> None:
    values = np.zeros((64, 64), np.uint8)
    values[13:40, 21:50] = 255
    path = tmp_path / "m.jpg"
    Image.fromarray(values).convert(mode).save(path, quality=75)
    assert len(np.unique(np.asarray(Image.open(path)))) > 2
    np.testing.assert_array_equal(read_mask(path), values > 0)


def test_photograph_in_place_of_a_jpeg_mask_is_refused(tmp_path: Path) -> None:
    ramp = np.tile(np.arange(256, dtype=np.uint8), (16, 1))
    with pytest.raises(DataError, match=r"photo\.jpg is not binary"):
        read_mask(save(tmp_path / "photo.jpg", ramp))
