"""From a map to a judged sample and its report."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pyogrio
import pytest

from adadino.accuracy import design as designs
from adadino.accuracy import draw_sample, read_sample
from adadino.errors import InputError, WriteError
from adadino.review import start_review, write_verdicts
from tests.geo.rasters import write
from tests.review.conftest import change_map


def world(seed: int = 0, side: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """A map and the truth: commission, and omission at the edges of change."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((side, side), np.uint8)
    for top, left in rng.integers(0, side - 30, (12, 2)):
        truth[top : top + 24, left : left + 24] = 1
    mapped = truth.copy()
    mapped[:, 1:] &= truth[:, :-1]  # a column is missed at every left edge
    mapped[:10, :20] = 1
    mapped[-5:] = 255
    return mapped, truth


@pytest.fixture
def mask(tmp_path):
    return write(tmp_path / "map.tif", world()[0][None], nodata=255)


def judge(path, truth, *, change=lambda frame: frame):
    """Fill in what the truth says, as an analyst in QGIS would."""
    frame = gpd.read_file(path, layer="sample")
    x, y = frame.geometry.centroid.x, frame.geometry.centroid.y
    col, row = (x - 500_000) // 2, (4_000_000 - y) // 2
    said = truth[row.astype(int), col.astype(int)]
    frame["verdict"] = np.where(said == 1, "change", "no change")
    pyogrio.write_dataframe(change(frame), path, layer="sample", driver="GPKG")


def test_a_sample_is_drawn_in_strata_and_estimates_the_truth(tmp_path, mask):
    design = draw_sample(mask, tmp_path / "s.gpkg", error=0.03, buffer=3, seed=1)
    mapped, truth = world()
    assert [s.name for s in design.strata] == ["change", "buffer", "no change"]
    assert design.strata[0].pixels == (mapped == 1).sum()
    assert sum(s.pixels for s in design.strata) == (mapped != 255).sum()
    judge(tmp_path / "s.gpkg", truth)
    found = read_sample(tmp_path / "s.gpkg")
    assert found.counts.sum(axis=1).tolist() == [s.sampled for s in design.strata]
    valid = mapped != 255
    share = truth[valid].mean()
    assert found.assessment.shares[1].low <= share <= found.assessment.shares[1].high
    right = ((mapped == 1) == (truth == 1))[valid].mean()
    assert abs(found.assessment.overall.value - right) < 0.03
    assert found.pixel_area == 4.0


def test_drawn_pixels_are_distinct_lie_in_their_strata_and_hide_the_map(tmp_path, mask):
    draw_sample(mask, tmp_path / "s.gpkg", size=300, buffer=2)
    frame = gpd.read_file(tmp_path / "s.gpkg", layer="sample")
    assert "stratum" not in frame.columns
    assert set(frame.geometry.area) == {4.0}
    assert frame.geometry.centroid.to_wkt().nunique() == len(frame)
    where = pyogrio.read_dataframe(tmp_path / "s.gpkg", layer="pixels")
    mapped = world()[0]
    centre = frame.geometry.centroid
    col = ((centre.x - 500_000) // 2).astype(int)
    row = ((4_000_000 - centre.y) // 2).astype(int)
    assert np.array_equal(mapped[row, col] == 1, where.stratum == 0)
    assert not (np.diff(where.stratum) >= 0).all()  # no order that gives the map away


def test_the_draw_depends_on_the_seed_alone_and_not_on_how_rows_are_read(
    tmp_path, mask, monkeypatch
):
    def places(name, seed):
        draw_sample(mask, tmp_path / name, size=200, seed=seed, buffer=4)
        return gpd.read_file(tmp_path / name, layer="sample").geometry.to_wkt().tolist()

    first = places("a.gpkg", 3)
    assert places("b.gpkg", 4) != first
    monkeypatch.setattr(designs, "ROWS", 17)
    again = places("c.gpkg", 3)
    assert sorted(again) == sorted(first)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_every_pixel_of_a_stratum_is_as_likely():
    import rasterio

    mapped = np.zeros((10, 10), np.uint8)
    mapped[:2] = 1
    hits = np.zeros((10, 10))
    with rasterio.MemoryFile() as memory:
        with memory.open(driver="GTiff", width=10, height=10, count=1, dtype="uint8") as out:
            out.write(mapped, 1)
        with memory.open() as dataset:
            for seed in range(400):
                design = designs.plan(dataset, error=0.1, size=20, seed=seed)
                drawn = designs.draw(dataset, design)
                hits[drawn.row, drawn.col] += 1
    assert design.strata[0].sampled == 20  # a stratum of 20 pixels is judged whole
    assert (hits[:2] == 400).all()
    expected = 400 * design.strata[1].sampled / 80
    assert np.abs(hits[2:] - expected).max() < 5 * np.sqrt(expected)


def test_what_is_not_judged_is_not_guessed(tmp_path, mask):
    draw_sample(mask, tmp_path / "s.gpkg", size=200)
    with pytest.raises(InputError, match=r"200 of 200 pixels .* not judged"):
        read_sample(tmp_path / "s.gpkg")


def test_unsure_pixels_are_left_out_and_counted(tmp_path, mask):
    draw_sample(mask, tmp_path / "s.gpkg", size=200)

    def change(frame):
        frame.loc[:4, "verdict"] = "unsure"
        return frame

    judge(tmp_path / "s.gpkg", world()[1], change=change)
    found = read_sample(tmp_path / "s.gpkg")
    assert (found.unsure, int(found.counts.sum())) == (5, 195)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.assign(verdict="maybe"), "has the verdict 'maybe'"),
        (lambda f: f.assign(id=1), "twice"),
        (lambda f: f.assign(verdict="unsure"), "stratum 'change' has 0 judged"),
        (lambda f: f.iloc[5:], "5 of 200"),
    ],
)
def test_a_sample_that_was_spoilt_is_refused(tmp_path, mask, change, words):
    draw_sample(mask, tmp_path / "s.gpkg", size=200)
    judge(tmp_path / "s.gpkg", world()[1], change=change)
    with pytest.raises(InputError, match=words):
        read_sample(tmp_path / "s.gpkg")


def test_verdicts_of_a_review_are_no_sample(tmp_path):
    path = write(tmp_path / "m.tif", change_map()[None], nodata=255)
    write_verdicts(start_review(tmp_path / "r", mask=path), tmp_path / "v.gpkg")
    with pytest.raises(InputError, match="are no random sample of the map"):
        read_sample(tmp_path / "v.gpkg")


def test_a_map_without_change_has_no_sample(tmp_path):
    path = write(tmp_path / "m.tif", np.zeros((1, 20, 20), np.uint8))
    with pytest.raises(InputError, match="no pixel of the stratum 'change'"):
        draw_sample(path, tmp_path / "s.gpkg")
    assert not (tmp_path / "s.gpkg").exists()


def test_a_file_is_not_replaced_unasked(tmp_path, mask):
    draw_sample(mask, tmp_path / "s.gpkg", size=200)
    with pytest.raises(WriteError, match="exists"):
        draw_sample(mask, tmp_path / "s.gpkg", size=200)
    with pytest.raises(WriteError, match=r"\.gpkg"):
        draw_sample(mask, tmp_path / "s.geojson", size=200)
