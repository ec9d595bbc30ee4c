"""What training writes into a model's card: the ground resolution and the look of its images."""

from __future__ import annotations

import json

import numpy as np
import pytest
import rasterio
from PIL import Image

from adadino.data.folder import PairFolder
from adadino.data.synthetic import World, synthesize
from adadino.domain import Domain, look_of
from adadino.training.domain import LEAST_TILES, domain_of, look_of_all


def pairs(folder, count=2, side=32):
    generator = np.random.default_rng(0)
    for role in ("A", "B", "label"):
        (folder / role).mkdir(parents=True)
        for number in range(count):
            pixels = generator.integers(0, 256, (side, side, 3), np.uint8)
            if role == "label":
                pixels = (pixels[..., 0] > 127) * np.uint8(255)
            Image.fromarray(pixels).save(folder / role / f"{number:02d}.png")
    return folder


def test_plain_images_do_not_say_their_resolution(tmp_path):
    assert domain_of(PairFolder(pairs(tmp_path / "set"))).resolution is None


def test_what_the_user_says_goes_before_all(tmp_path):
    folder = pairs(tmp_path / "set")
    (folder / "manifest.json").write_text('{"resolution_m": 0.3}')
    said = PairFolder(folder)
    assert domain_of(said).resolution == (0.3, 0.3)
    assert domain_of(said, resolution=(0.5, 2.0)).resolution == (0.5, 2.0)


@pytest.mark.parametrize(
    ("manifest", "known"),
    [
        ({"settings": {"name": "clcd"}}, (0.5, 2.0)),
        ({"settings": {"name": "whu-cd"}}, (0.2, 0.2)),
        ({"settings": {"name": "folder"}}, None),
        ({"resolution_m": None}, None),
        ({"resolution_m": "0.5"}, None),
        ({"resolution_m": -1}, None),
        ([], None),
    ],
)
def test_a_manifest_says_it(tmp_path, manifest, known):
    pairs(tmp_path / "set" / "train")
    (tmp_path / "set" / "manifest.json").write_text(json.dumps(manifest))
    assert domain_of(PairFolder(tmp_path / "set", "train")).resolution == known


def test_the_synthetic_world_says_its_own(tmp_path):
    synthesize(tmp_path / "set", {"train": 2}, size=64, world=World(gsd=0.7))
    assert domain_of(PairFolder(tmp_path / "set", "train")).resolution == (0.7, 0.7)


def test_geotiffs_say_it(tmp_path):
    synthesize(tmp_path / "set", {"train": 2}, size=64, world=World(gsd=1.5), geotiff=True)
    (tmp_path / "set" / "manifest.json").unlink()
    found = domain_of(PairFolder(tmp_path / "set", "train")).resolution
    assert found == pytest.approx((1.5, 1.5), rel=1e-3)
    for path in (tmp_path / "set" / "train" / "A").iterdir():
        with rasterio.open(path, "r+") as raster:
            raster.crs = rasterio.crs.CRS()
    assert domain_of(PairFolder(tmp_path / "set", "train")).resolution is None


def test_two_folders_are_one_range_and_unknown_if_one_is(tmp_path):
    one, other = pairs(tmp_path / "one"), pairs(tmp_path / "other")
    (one / "manifest.json").write_text('{"resolution_m": 0.3}')
    assert domain_of(PairFolder([one, other])).resolution is None
    (other / "manifest.json").write_text('{"resolution_m": 10}')
    assert domain_of(PairFolder([one, other])).resolution == (0.3, 10.0)


def test_the_look_is_that_of_nearly_all_tiles():
    generator = np.random.default_rng(1)
    images = [
        generator.integers(0, 100 + number, (3, 256, 256), np.uint8)
        for number in range(LEAST_TILES)
    ]
    found = look_of_all(images)
    looks = [look_of(image.astype(np.float32) / 255)["brightness"] for image in images]
    assert found["brightness"] == pytest.approx(np.percentile(looks, (0.5, 99.5)), abs=6e-4)
    assert look_of_all(images[1:]) == {}  # too few to be a distribution


def test_a_large_image_is_many_tiles():
    image = np.zeros((3, 256 * 10, 256 * 5), np.uint8)
    image[:, :256] = 255
    assert look_of_all([image])["brightness"] == (0.0, 1.0)


def test_ranges_join():
    base = Domain((0.5, 2.0), {"colour": (0.1, 0.2)})
    assert base.joined(Domain((10, 10), {"colour": (0.0, 0.15)})) == Domain(
        (0.5, 10), {"colour": (0.0, 0.2)}
    )
    assert base.joined(Domain(None, {})) == base
    assert Domain(None, {}).joined(base) == base
