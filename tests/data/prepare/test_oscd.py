"""A miniature of OSCD as its authors ship it: folders, or zips."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest
import rasterio
from PIL import Image
from typer.testing import CliRunner

from adadino.bands import BandsConfig
from adadino.cli.app import app
from adadino.data.folder import PairFolder
from adadino.data.prepare.oscd import BANDS
from adadino.data.prepare.run import prepare
from adadino.errors import DataError

SIZES = {"rennes": (20, 26), "pisa": (18, 30), "brasilia": (16, 16), "beirut": (12, 12)}
IMAGES, TRAIN, TEST = (
    f"Onera Satellite Change Detection dataset - {part}"
    for part in ("Images", "Train Labels", "Test Labels")
)

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def band(path, seed, shape):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(500, 4000, shape).astype(np.uint16)
    height, width = shape
    with rasterio.open(
        path, "w", driver="GTiff", count=1, dtype="uint16", height=height, width=width
    ) as file:
        file.write(pixels, 1)
    return pixels


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "download"
    for number, (city, shape) in enumerate(SIZES.items()):
        for date in (1, 2):
            for place, name in enumerate(BANDS):
                seed = 1000 * number + 100 * date + place
                band(root / IMAGES / city / f"imgs_{date}_rect" / f"{name}.tif", seed, shape)
        if city == "beirut":
            continue
        folder = root / (TEST if city == "brasilia" else TRAIN) / city / "cm"
        folder.mkdir(parents=True)
        mask = np.zeros(shape, np.uint8)
        mask[2:6, 3:9] = 255
        Image.fromarray(mask).save(folder / "cm.png")
        (folder / f"{city}-cm.tif").write_bytes(b"another form of the mask")
    return root


def test_cities_become_scenes_of_all_bands(source, tmp_path):
    manifest = prepare("oscd", source, tmp_path / "out")
    assert manifest.counts == {"test": 1, "train": 1, "val": 1}
    assert "beirut" in manifest.notes[0]
    assert "CC-BY-NC-SA" in manifest.notes[-1]
    with rasterio.open(tmp_path / "out" / "val" / "B" / "rennes.tif") as scene:
        assert scene.descriptions == tuple(BANDS)
        assert scene.dtypes[0] == "uint16"
        for place, name in enumerate(BANDS):
            original = source / IMAGES / "rennes" / "imgs_2_rect" / f"{name}.tif"
            with rasterio.open(original) as file:
                np.testing.assert_array_equal(scene.read(place + 1), file.read(1))
    five = BandsConfig(names=("B02", "B03", "B04", "B08", "B11"), low=(0.0,), high=(4000.0,))
    pairs = PairFolder(tmp_path / "out", "val", tile=16, bands=five)
    assert len(pairs) == 4
    assert sum(int(item[2].sum()) for item in pairs) == 24


def test_zips_give_the_same(source, tmp_path):
    zipped = tmp_path / "zipped"
    zipped.mkdir()
    for name in (IMAGES, TRAIN, TEST):
        with zipfile.ZipFile(zipped / f"{name}.zip", "w") as archive:
            for path in sorted((source / name).rglob("*.*")):
                archive.write(path, path.relative_to(source / name))
    one = prepare("oscd", source, tmp_path / "one")
    two = prepare("oscd", zipped, tmp_path / "two")
    assert one.splits == two.splits


def test_a_finished_set_is_left_and_another_one_refused(source, tmp_path):
    first = prepare("oscd", source, tmp_path / "out")
    before = (tmp_path / "out" / "train" / "A" / "pisa.tif").stat().st_mtime_ns
    assert prepare("oscd", source, tmp_path / "out") == first
    assert (tmp_path / "out" / "train" / "A" / "pisa.tif").stat().st_mtime_ns == before
    band(source / IMAGES / "pisa" / "imgs_1_rect" / "B01.tif", 99, (18, 30))
    with pytest.raises(DataError, match="overwrite"):
        prepare("oscd", source, tmp_path / "out")


def test_what_is_missing_is_named(source, tmp_path):
    (source / IMAGES / "pisa" / "imgs_2_rect" / "B8A.tif").unlink()
    with pytest.raises(DataError, match="pisa/imgs_2_rect lacks B8A"):
        prepare("oscd", source, tmp_path / "out")
    with pytest.raises(DataError, match="no city has imgs_1_rect"):
        prepare("oscd", source / TRAIN, tmp_path / "out")
    with pytest.raises(DataError, match=r"no city has cm/cm\.png"):
        prepare("oscd", source / IMAGES, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_band_of_another_size_or_broken_is_named(source, tmp_path):
    path = source / IMAGES / "pisa" / "imgs_1_rect" / "B03.tif"
    band(path, 1, (17, 30))
    with pytest.raises(DataError, match=r"B03\.tif is 30 x 17"):
        prepare("oscd", source, tmp_path / "out")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="cannot read"):
        prepare("oscd", source, tmp_path / "other")


def test_the_command_says_what_to_type_next(source, tmp_path):
    done = CliRunner().invoke(app, ["prepare", "oscd", str(source), str(tmp_path / "out"), "-q"])
    assert done.exit_code == 0, done.output
    assert "--model.bands.names" in done.output
