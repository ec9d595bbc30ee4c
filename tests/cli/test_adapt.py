"""`adadino adapt`: the command line of an adaptation."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from adadino.data.folder import PairFolder
from adadino.review import start_review, write_verdicts
from adadino.training.adapt.judged import judged_tiles
from tests.geo.rasters import noise, write
from tests.training.adapt.test_adapt import base, data  # noqa: F401  (fixtures)


def test_labels_or_a_judged_map_but_not_both(adadino, tmp_path):
    out = ("-o", tmp_path / "mine")
    assert adadino("adapt", "tiny", *out).code == 2
    assert adadino("adapt", "tiny", "--data", tmp_path, "--judged", tmp_path, *out).code == 2
    assert adadino("adapt", "tiny", "--judged", tmp_path, *out).code == 2


def test_a_folder_without_tiles_is_a_sentence(adadino, tmp_path):
    said = adadino("adapt", "tiny", "--data", tmp_path / "nothing", "-o", tmp_path / "mine")
    assert said.code == 1
    assert "nothing" in said.err
    assert not (tmp_path / "mine").exists()


@pytest.mark.slow
def test_a_folder_of_tiles(adadino, tmp_path, base, data):  # noqa: F811
    said = adadino(
        "adapt", base, "--data", data, "-o", tmp_path / "mine", "--steps", 1, "--replay", 0,
        "--anyway", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["kept"] == "new"
    assert set(found["held_out"]) >= {"old", "new", "f1_difference", "better"}
    assert (tmp_path / "mine" / "model.safetensors").is_file()


@pytest.mark.parametrize("as_file", [False, True])
def test_a_judged_map_becomes_tiles(tmp_path, as_file):
    mask = np.zeros((512, 512), np.uint8)
    mask[20:60, 20:60] = mask[300:340, 300:340] = mask[20:60, 300:340] = mask[300:340, 9:50] = 1
    path = write(tmp_path / "change.tif", mask[None], nodata=255)
    dates = [str(write(tmp_path / f"{n}.tif", noise(3, 512, 512) // n)) for n in (1, 2)]
    review = start_review(tmp_path / "review", mask=path)
    for shape, verdict in ((1, "right"), (2, "wrong"), (3, "right"), (4, "unsure")):
        review.act({"do": "judge", "shape": shape, "verdict": verdict}, by="ana")
    review.act(
        {"do": "unchanged", "geometry": {"type": "Polygon", "coordinates": [
            [(260, 400), (500, 400), (500, 500), (260, 500), (260, 400)]]}},
        by="ana",
    )  # fmt: skip
    judged = review.folder
    if as_file:
        judged = tmp_path / "v.gpkg"
        write_verdicts(review, judged)
    folder = judged_tiles(judged, *dates, tmp_path / "mine")
    found = PairFolder(folder)
    labels = sum(int(found[index][2].sum()) for index in range(len(found)))
    right = [review.polygons[shape].outline for shape in (1, 3)]
    assert labels == sum(round(outline.buffer(-2).area) for outline in right)
    known = [np.array(Image.open(path)) for path in (folder / "known").iterdir()]
    rings = sum(outline.buffer(8).area - outline.buffer(-2).area for outline in right)
    unsure = review.polygons[4].outline.buffer(8).area
    unknown = sum(int((mask == 0).sum()) for mask in known)
    # Nothing else was said in the tile of the unsure polygon, or it and its edge are unknown.
    assert any(abs(unknown - area) < 0.02 * area for area in (rings, rings + unsure))
