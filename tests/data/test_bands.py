"""Images of many bands, as training reads them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import rasterio
from PIL import Image

from adadino.bands import BandsConfig
from adadino.data.bands import read_bands, with_limits
from adadino.data.folder import PairFolder
from adadino.errors import DataError

NAMES = ("B02", "B03", "B04", "B08")
FOUR = BandsConfig(names=NAMES, low=(100.0, 0.0, 50.0, 0.0), high=(1100.0, 500.0, 3050.0, 4000.0))

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def write(path, pixels, descriptions=NAMES, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    count, height, width = pixels.shape
    kind = {"driver": "GTiff", "dtype": pixels.dtype, "count": count} | more
    with rasterio.open(path, "w", height=height, width=width, **kind) as file:
        file.write(pixels)
        file.descriptions = descriptions
    return path


def pixels(dtype, seed=0, shape=(4, 20, 30)):
    most = 255 if dtype == np.uint8 else 4000
    return np.random.default_rng(seed).integers(1, most, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float32])
def test_every_sample_type_is_scaled_by_the_configuration(tmp_path, dtype) -> None:
    image = pixels(dtype)
    low, high = (np.array(each)[:, None, None] for each in FOUR.limits)
    expected = np.clip((image.astype(np.float64) - low) / (high - low), 0, 1)
    found = read_bands(write(tmp_path / "a.tif", image), FOUR)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_bands_are_read_by_name_whatever_their_order(tmp_path) -> None:
    image = pixels(np.uint16)
    straight = read_bands(write(tmp_path / "a.tif", image), FOUR)
    turned = read_bands(write(tmp_path / "b.tif", image[::-1], NAMES[::-1]), FOUR)
    np.testing.assert_array_equal(straight, turned)


def test_an_array_holds_the_bands_of_the_model(tmp_path) -> None:
    image = pixels(np.uint16)
    np.save(tmp_path / "a.npy", image)
    tif = read_bands(write(tmp_path / "a.tif", image), FOUR)
    np.testing.assert_array_equal(read_bands(tmp_path / "a.npy", FOUR), tif)
    np.save(tmp_path / "b.npy", image[:3])
    with pytest.raises(DataError, match=r"\(4, height, width\), the bands B02, B03, B04, B08"):
        read_bands(tmp_path / "b.npy", FOUR)
    np.save(tmp_path / "c.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="cannot read"):
        read_bands(tmp_path / "c.npy", FOUR)


def test_what_has_no_data_is_zero_in_every_band(tmp_path) -> None:
    image = pixels(np.float32)
    image[:, 3, 4] = -9999
    image[1, 5, 6] = np.nan
    found = read_bands(write(tmp_path / "a.tif", image, nodata=-9999), FOUR)
    assert not found[:, 3, 4].any()
    assert not found[:, 5, 6].any()
    assert found[:, 0, 0].any()


def test_a_file_without_a_band_is_named(tmp_path) -> None:
    path = write(tmp_path / "a.tif", pixels(np.uint16)[:3], NAMES[:3])
    with pytest.raises(DataError, match=r"a\.tif lacks B08"):
        read_bands(path, FOUR)


def test_percentiles_are_those_of_the_training_images(tmp_path) -> None:
    images = [pixels(np.uint16, seed) for seed in (0, 1)]
    paths = [write(tmp_path / f"{i}.tif", image) for i, image in enumerate(images)]
    found = with_limits(BandsConfig(names=NAMES), paths)
    every = np.concatenate([image.reshape(4, -1) for image in images], axis=1)
    low, high = np.percentile(every, (0.5, 99.5), axis=1)
    np.testing.assert_allclose(found.limits, [low, high], atol=1e-5)
    assert with_limits(found, []) is found
    flat = write(tmp_path / "flat.tif", np.ones((4, 8, 8), np.uint16))
    with pytest.raises(DataError, match="band B02 has the value 1"):
        with_limits(BandsConfig(names=NAMES), [flat])


def folder(root, shape=(4, 20, 30)):
    for seed, role in enumerate("AB"):
        write(root / role / "one.tif", pixels(np.uint16, seed, shape))
    (root / "label").mkdir()
    mask = np.random.default_rng(3).integers(0, 2, shape[1:]).astype(np.uint8)
    Image.fromarray(255 * mask).save(root / "label" / "one.png")
    return root, mask


def test_tiles_at_the_edges_are_filled_with_what_did_not_change(tmp_path) -> None:
    root, mask = folder(tmp_path)
    pairs = PairFolder(root, tile=16, bands=FOUR, cache=True)
    assert pairs.names == ["one_0_0", "one_0_1", "one_1_0", "one_1_1"]
    whole = np.zeros((32, 32), np.uint8)
    for (before, after, label, index), (row, column) in zip(
        pairs, [(0, 0), (0, 16), (16, 0), (16, 16)], strict=True
    ):
        assert before.shape == after.shape == (4, 16, 16)
        whole[row : row + 16, column : column + 16] = label
        if index == 3:
            assert not before[:, 4:].any()
            assert not before[:, :, 14:].any()
    np.testing.assert_array_equal(whole[:20, :30], mask)
    assert not whole[20:].any()


def test_a_tile_that_moves_stays_inside(tmp_path) -> None:
    root, _ = folder(tmp_path)
    pairs = PairFolder(root, tile=16, bands=FOUR, cache=True)
    before, *_ = pairs[3, 0.5, 0.5]
    whole = read_bands(root / "A" / "one.tif", FOUR)
    np.testing.assert_array_equal(before, whole[:, 4:20, 14:30])


def test_scaling_of_the_run_is_found_before_training_and_kept(tmp_path) -> None:
    from adadino.training.config import load_run
    from adadino.training.data import scaled

    folder(tmp_path / "train")
    run = load_run(None, ["preset=tiny", f"model.bands.names={[*NAMES]}", f"data.root={tmp_path}"])
    found = scaled(run).model.bands
    assert found.is_scaled
    assert scaled(dataclasses.replace(run, model=scaled(run).model)).model.bands == found
