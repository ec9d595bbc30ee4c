"""A whole series: what it writes, what it keeps, what it refuses, and how right it is."""

from __future__ import annotations

import json
import subprocess
import sys

import geopandas as gpd
import numpy as np
import pytest
import rasterio
from PIL import Image

import adadino
import adadino.series.pairs as pairs_of_a_series
from adadino.data.synthetic import write_series
from adadino.domain import Domain
from adadino.errors import AdaDINOError, DomainWarning, GridWarning, InputError, WriteError
from adadino.scene import SceneOptions
from adadino.scene.extent import Place
from adadino.series import SeriesOptions
from adadino.series.fuse import CHANGED, fuse
from tests.scene.runs import a_model, read

SCENE = SceneOptions(tile=64, overlap=16)


@pytest.fixture(scope="module")
def dates(tmp_path_factory):
    images, clouds, _ = write_series(tmp_path_factory.mktemp("dates"), 5, 100, 4)
    return images, clouds


@pytest.fixture(scope="module")
def model():
    return a_model()


def run(images, model, folder, *, place=None, options=SCENE, overwrite=False, **series):
    return adadino.predict_series(
        images, model, output=folder, options=options, series=SeriesOptions(**series),
        place=place, device="cpu", overwrite=overwrite,
    )  # fmt: skip


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("which", ["first", "both"])
def test_the_maps_are_the_rule_applied_to_the_pairs(dates, model, tmp_path, which):
    images, clouds = dates
    result = run(
        images[::-1], model, tmp_path / "out", pairs=which, gif=True, timelines=2,
        place=Place(mask=tuple(map(str, clouds))),
    )  # fmt: skip
    assert result.images == tuple(map(str, images))
    chances = {
        pair: read(tmp_path / "out" / "pairs" / f"{result.dates[pair[0]]}_{result.dates[pair[1]]}_"
                   "probability.tif")
        for pair in SeriesOptions(pairs=which).compared(4)
    }  # fmt: skip
    for (before, after), chance in chances.items():
        hidden = (read(clouds[before]) | read(clouds[after])) == 1
        assert np.array_equal(np.isnan(chance), hidden)
    expected = fuse(chances, 4, threshold=0.5, stays=2)
    for name, layer in expected._asdict().items():
        assert np.array_equal(read(tmp_path / "out" / f"{name}.tif"), layer, equal_nan=True), name
    mask = read(tmp_path / "out" / "change.tif")
    assert np.array_equal(mask == 1, np.isin(expected.persistence, CHANGED))
    assert np.array_equal(result.first_change, expected.first_change)

    frame = gpd.read_file(tmp_path / "out" / "change.gpkg", layer="change")
    assert len(frame) == len(result.polygons) > 2
    assert frame["area_m2"].sum() == pytest.approx(np.count_nonzero(mask == 1) * 0.25)
    assert set(frame["first_seen"]) <= set(result.dates[1:])
    assert (frame["last_seen"] >= frame["first_seen"]).all()
    assert frame["confidence"].between(0, 1).all()
    assert len(list((tmp_path / "out" / "timelines").iterdir())) == 2
    with Image.open(tmp_path / "out" / "series.gif") as moving:
        assert moving.n_frames == 4
    said = json.loads((tmp_path / "out" / "series.json").read_text())
    assert [one["date"] for one in said["dates"]] == list(result.dates)


def test_a_polygon_has_the_date_of_most_of_its_pixels(dates, model, tmp_path):
    result = run(dates[0], model, tmp_path / "out", timelines=0)
    largest = result.polygons.iloc[0]
    inside = rasterio.features.geometry_mask(
        [largest.geometry], result.grid.shape, result.grid.transform, invert=True
    )
    numbers = np.bincount(result.first_change[inside], minlength=4)
    assert result.dates[numbers.argmax()] == largest.first_seen
    assert largest.same_date == pytest.approx(numbers.max() / numbers.sum(), abs=1e-4)


def test_the_same_call_and_a_new_date_keep_the_finished_pairs(dates, model, tmp_path, monkeypatch):
    images, _ = dates
    run(images[:3], model, tmp_path / "out")
    calls, predict = [], pairs_of_a_series.predict_scene
    monkeypatch.setattr(
        pairs_of_a_series, "predict_scene", lambda *a, **k: calls.append(a[:2]) or predict(*a, **k)
    )
    first = contents(tmp_path / "out")
    run(images[:3], model, tmp_path / "out")
    assert calls == []
    assert contents(tmp_path / "out") == first
    run(images, model, tmp_path / "out")
    assert calls == [(str(images[0]), str(images[3]))]
    with pytest.raises(WriteError, match=r"made with another overlap \(16, now 8\).*--overwrite"):
        run(images, model, tmp_path / "out", options=SceneOptions(tile=64, overlap=8))


def test_a_killed_pair_goes_on_from_its_rows(dates, tmp_path):
    images, _ = dates
    small = SceneOptions(tile=32, overlap=8)
    run(images, a_model(), tmp_path / "whole", timelines=0, options=small)
    model, calls = a_model(), []
    forward = model.forward

    def stops(*arguments, **options):
        calls.append(1)
        if len(calls) == 30:  # in the second of three pairs
            raise KeyboardInterrupt
        return forward(*arguments, **options)

    model.forward = stops
    with pytest.raises(KeyboardInterrupt):
        run(images, model, tmp_path / "killed", timelines=0, options=small)
    assert list((tmp_path / "killed" / "pairs").glob(".*.work/rows.txt"))
    finished = next((tmp_path / "killed" / "pairs").glob("*_probability.tif"))
    made = finished.stat().st_mtime_ns
    run(images, model, tmp_path / "killed", timelines=0, options=small)
    assert finished.stat().st_mtime_ns == made
    assert read(tmp_path / "killed" / "confidence.tif").tobytes() == (
        read(tmp_path / "whole" / "confidence.tif").tobytes()
    )


def test_a_date_on_other_pixels_is_laid_on_the_first(dates, model, tmp_path):
    images, _ = dates
    moved = []
    for number, path in enumerate(images[:3]):
        with rasterio.open(path) as raster:
            data, profile = raster.read(), raster.profile
        if number == 1:  # shifted by ten columns: a strip of the first date stays without it
            profile |= {"transform": profile["transform"] * rasterio.Affine.translation(10, 0)}
        moved.append(tmp_path / path.name)
        with rasterio.open(moved[-1], "w", **profile) as raster:
            raster.write(data)
    with pytest.warns(GridWarning, match="the overlap 90 x 100"):
        result = run(moved, model, tmp_path / "out", pairs="consecutive", timelines=1)
    with rasterio.open(moved[0]) as raster:
        assert (result.grid.transform, result.grid.shape) == (raster.transform, raster.shape)
    assert (result.first_change[:, :10] == 255).all()
    assert (result.first_change[:, 10:] != 255).all()


def test_a_date_that_is_all_cloud_is_left_apart(dates, model, tmp_path):
    images, _ = dates
    with rasterio.open(images[1]) as raster:
        profile, cloud = raster.profile | {"count": 1}, np.ones(raster.shape, np.uint8)
    profile.pop("photometric", None)
    with rasterio.open(tmp_path / "c.tif", "w", **profile) as raster:
        raster.write(cloud, 1)
    day = images[1].stem
    with pytest.warns(UserWarning, match="left apart: nothing to compare"):
        result = run(
            images[:3], model, tmp_path / "out", place=Place(mask=(f"{day}={tmp_path}/c.tif",))
        )
    assert set(np.unique(result.first_change)) <= {0, 2}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda images: images[:1], "only"),
        (lambda images: [images[0], images[0].with_name("missing-2020.tif")], "no file"),
        (lambda images: [images[0], images[0]], "have the same date"),
    ],
)
def test_what_is_refused_leaves_nothing(dates, model, tmp_path, change, says):
    with pytest.raises(AdaDINOError, match=says):
        run(change(dates[0]), model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_pair_that_fails_leaves_nothing(dates, model, tmp_path):
    with pytest.raises(InputError, match=r"area of interest|no pixel|outside"):
        run(dates[0], model, tmp_path / "out", place=Place(bbox=(0, 0, 1, 1)))
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_left_alone(dates, model, tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(WriteError, match="not empty and holds no series"):
        run(dates[0], model, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_the_command_names_the_way_out(dates, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "adadino.cli.app", "predict-series", str(dates[0][0]),
         "-o", str(tmp_path / "out")], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("adadino: a series needs 2 to 250 dates")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_eight_dates_are_found_where_and_when_they_changed(tmp_path):
    """The bundled model on a world of seasons and clouds: place, and date where it was seen."""
    images, clouds, truth_path = write_series(tmp_path / "dates", 5, 384, 8)
    result = adadino.predict_series(
        images, output=tmp_path / "out", device="cpu", place=Place(mask=tuple(map(str, clouds)))
    )
    truth, found = read(truth_path), result.first_change
    changed, known = read(tmp_path / "out" / "change.tif") == 1, found != 255
    hits = np.count_nonzero(changed & (truth > 0))
    f1 = 2 * hits / (np.count_nonzero(changed) + np.count_nonzero(known & (truth > 0)))
    hidden = np.stack([read(path) for path in clouds]) == 1
    rows, cols = np.nonzero(changed & (truth > 0))
    numbers = truth[rows, cols]
    visible = ~hidden[numbers, rows, cols]
    exact = (found[rows, cols] == numbers)[visible].mean()
    assert f1 > 0.9
    assert exact > 0.9


def test_a_series_outside_the_model_s_range_has_no_bare_figure(dates, tmp_path):
    network = a_model()
    network.domain = Domain((1.0, 2.0), {})
    with pytest.warns(DomainWarning, match="2.0 times outside"):
        result = run(dates[0][:2], network, tmp_path / "out")
    assert result.domain.startswith("not reliable: 0.5 m pixels, 2.0 times outside")
    assert json.loads((tmp_path / "out" / "series.json").read_text())["domain"] == result.domain
