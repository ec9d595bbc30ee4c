"""What callers of a scene may ask for: phases, the open pair, names, an opener, local systems."""

from __future__ import annotations

import numpy as np
import pytest
import rasterio
from rasterio.crs import CRS
from rasterio.transform import from_origin
from rasterio.windows import Window

from adadino.errors import BandWarning, InputError, WriteError
from adadino.geo.read.source import open_dataset
from adadino.scene import SceneOptions, predict_scene
from tests.scene.runs import a_model, rewrite, run, two_dates


def test_every_phase_is_told_and_only_tiles_are_counted(scene, tmp_path):
    told = []
    run(scene, a_model(), tmp_path / "out", progress=lambda *said: told.append(said))
    named = [said for said in told if "," not in said[2]]
    tiles = len(told) - len(named)
    total = named[2][1]
    assert named == [
        (0, 0, "opening"), (0, 0, "preparing"), (0, total, "predicting"), (0, 0, "writing")
    ]  # fmt: skip
    assert [said[:2] for said in told if "," in said[2]] == [
        (done, total) for done in range(1, tiles + 1)
    ]
    assert tiles == total > 1


def test_the_open_pair_is_handed_on_before_the_model_runs(scene, tmp_path):
    model, seen, events = a_model(), [], []
    forward = model.forward

    def counted(*arguments, **options):
        events.append("model")
        return forward(*arguments, **options)

    def opened(reader):
        events.append("opened")
        seen.append((reader.grid, reader.stretch, reader.read(Window(0, 0, 8, 8)).before))

    model.forward = counted
    result = predict_scene(
        *scene, model, output=tmp_path / "c.tif", options=SceneOptions(tile=64, overlap=16),
        device="cpu", opened=opened,
    )  # fmt: skip
    assert events[0] == "opened"
    assert events.count("opened") == 1
    ((grid, _, image),) = seen
    assert grid == result.grid
    with rasterio.open(scene[0]) as raster:
        assert (image == raster.read(window=Window(0, 0, 8, 8)) / np.float32(255)).all()


def test_files_have_the_names_the_user_gave_them(scene, tmp_path):
    """The rows of an interrupted run do not depend on those names."""
    single = []
    for path in scene:
        single.append(rewrite(path, tmp_path / f"grey-{path.name}", lambda data: data[:1], count=1))
    told = []
    names = "user before.tif", "user after.tif"

    def interrupted(done, total, message):
        if done == 12:
            raise KeyboardInterrupt

    options = {"options": SceneOptions(tile=64, overlap=16), "device": "cpu"}
    with pytest.raises(KeyboardInterrupt), pytest.warns(BandWarning):
        predict_scene(
            *single, a_model(), output=tmp_path / "c.tif", progress=interrupted, **options
        )
    with pytest.warns(BandWarning, match="user before.tif and user after.tif: one band"):
        result = predict_scene(
            *single, a_model(), output=tmp_path / "c.tif", overview=tmp_path / "o.png",
            names=names, resume=True, progress=lambda *said: told.append(said), **options,
        )  # fmt: skip
    assert next(done for done, total, _ in told if total) > 0, "it went on"
    with rasterio.open(tmp_path / "c.tif") as raster:
        assert raster.tags()["ADADINO_BEFORE"] == "user before.tif"
        assert raster.tags()["ADADINO_AFTER"] == "user after.tif"
    assert any("user before.tif" in text for text in result.warnings)
    assert not any("grey-" in text for text in result.warnings)
    assert result.title == "user before.tif and user after.tif"
    with pytest.raises(InputError, match=r"the same image, a\.tif and b\.tif"):
        predict_scene(single[0], single[0], a_model(), names=("a.tif", "b.tif"), **options)


def test_every_input_is_opened_as_it_was_asked(scene, tmp_path, monkeypatch):
    """Registering, stretching, predicting, drawing and describing: all by the given opener."""
    inputs, opened, others = {str(path) for path in scene}, [], []
    plain = rasterio.open

    def door(path):
        opened.append(str(path))
        others.append(None)
        try:
            return open_dataset(path)
        finally:
            others.pop()

    def watched(path, *arguments, **options):
        assert others or str(path) not in inputs, f"{path} is opened by somebody else"
        return plain(path, *arguments, **options)

    monkeypatch.setattr(rasterio, "open", watched)
    result = predict_scene(
        *scene, a_model(), output=tmp_path / "c.tif", overview=tmp_path / "o.png",
        stac=tmp_path / "c.json", vector=tmp_path / "c.gpkg", open_file=door,
        options=SceneOptions(tile=64, overlap=16, register=True, readers=1), device="cpu",
    )  # fmt: skip
    result._repr_html_()
    assert set(opened) == inputs
    assert len(opened) >= 12  # header, main thread, reader, picture, time; each of both dates


@pytest.mark.filterwarnings("ignore::adadino.errors.GridWarning")
@pytest.mark.parametrize("same", [True, False])
def test_a_scene_in_a_local_system(tmp_path, same):
    """Metres without a place on Earth: measured on the plane, and never called longitude."""
    local = CRS.from_wkt('LOCAL_CS["site",UNIT["metre",1],AXIS["x",EAST],AXIS["y",NORTH]]')
    dates = [
        rewrite(path, tmp_path / f"local-{path.name}", lambda data: data, crs=local)
        for path in two_dates(tmp_path)
    ]
    if not same:  # another origin: after is warped
        moved = from_origin(400000.25, 5000000, 0.5, 0.5)
        dates[1] = rewrite(dates[1], tmp_path / "moved.tif", lambda data: data, transform=moved)
    options = {"options": SceneOptions(tile=64, overlap=16), "device": "cpu"}
    result = predict_scene(
        *dates, a_model(), output=tmp_path / "c.tif", vector=tmp_path / "c.gpkg",
        overview=tmp_path / "o.png", **options,
    )  # fmt: skip
    assert result.grid.is_local
    assert not result.grid.on_earth
    assert result.area == pytest.approx((result.mask == 1).sum() * 0.25)
    for name, reason in (("vector", "c.geojson"), ("stac", "item.json")):
        with pytest.raises(WriteError, match="local"):
            predict_scene(
                *dates, a_model(), output=tmp_path / "d.tif", **{name: tmp_path / reason}, **options
            )
    with pytest.raises(InputError, match="nothing leads from a local system"):
        predict_scene(
            dates[0], tmp_path / "after.tif", a_model(), output=tmp_path / "d.tif", **options
        )
