"""What changed into what: rasters, polygons, the matrix, and what is refused."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import torch
from PIL import Image

from adadino.checkpoint import save
from adadino.config import ClassesConfig
from adadino.data.synthetic import write_geotiff_pair
from adadino.errors import ConfigError, InputError, WriteError
from adadino.geo.write.cog import MASK
from adadino.model.adadino import AdaDINO
from adadino.scene import SceneOptions, predict_scene
from adadino.scene.journal import Journal
from adadino.semantic.choice import from_to
from tests.conftest import SMALL, randomise
from tests.scene.runs import a_model, files, rewrite

CLASSES = ClassesConfig(("lake", "field", "house"), ("#0a141e", "#28323c", "#46505a"))


def a_semantic_model() -> AdaDINO:
    """`a_model`, and a head beside it."""
    model = AdaDINO(dataclasses.replace(SMALL, classes=CLASSES))
    torch.manual_seed(3)
    randomise(model.classes, 0.5)
    plain = a_model()
    model.load_state_dict(plain.state_dict(), strict=False)
    return model.eval()


def run(scene, folder, model=None, *, resume=False, overwrite=False, progress=None, **options):
    return predict_scene(
        *scene,
        model or a_semantic_model(),
        output=folder / "c.tif",
        vector=folder / "v.gpkg",
        probability=folder / "p.tif",
        classes=folder / "classes",
        options=SceneOptions(**({"tile": 64, "overlap": 16} | options)),
        device="cpu",
        resume=resume,
        overwrite=overwrite,
        progress=progress,
    )


@pytest.fixture(scope="module")
def told(scene, tmp_path_factory):
    folder = tmp_path_factory.mktemp("told")
    return folder, run(scene, folder)


def read(path):
    with rasterio.open(path) as raster:
        return raster.read(1)


def test_the_change_keeps_every_byte(told, scene, tmp_path):
    folder, _ = told
    predict_scene(
        *scene, a_model(), output=tmp_path / "c.tif", probability=tmp_path / "p.tif",
        options=SceneOptions(tile=64, overlap=16), device="cpu",
    )  # fmt: skip
    for name in ("c.tif", "p.tif"):
        assert np.array_equal(read(folder / name), read(tmp_path / name), equal_nan=True)


def test_rasters_hold_a_class_where_the_mask_says_change(told):
    folder, _ = told
    mask, before, after = (
        read(folder / name) for name in ("c.tif", "classes/from.tif", "classes/to.tif")
    )
    change = mask == 1
    assert change.any()
    for values in (before, after):
        assert set(np.unique(values[change])) <= {1, 2, 3}
        assert (values[mask == 0] == 0).all()
    assert (before[change] != after[change]).all()


def test_a_tile_alone_gives_the_models_own_classes(scene, tmp_path):
    """One tile, no blending: what is written is what `forward` says."""
    model = a_semantic_model()
    box = [path.with_name(f"cut_{path.name}") for path in map(Path, scene)]
    for source, target in zip(map(Path, scene), box, strict=True):
        rewrite(source, target, lambda data: data[:, :64, :64], width=64, height=64)
    run(box, tmp_path, model, overlap=0)
    images = [torch.from_numpy(read3(path)).float()[None] / 255 for path in box]
    with torch.no_grad():
        chosen = from_to(model(*images).classes.softmax(2))[0].numpy()
    change = read(tmp_path / "c.tif") == 1
    assert change.any()
    for end, values in zip(("from", "to"), chosen, strict=True):
        found = read(tmp_path / "classes" / f"{end}.tif")
        assert np.array_equal(found[change], values[change])


def read3(path):
    with rasterio.open(path) as raster:
        return raster.read()


def test_rasters_carry_colours_and_names(told):
    folder, _ = told
    with rasterio.open(folder / "classes" / "to.tif") as raster:
        assert raster.colormap(1)[2][:3] == (40, 50, 60)
        assert raster.nodata == 255
        assert json.loads(raster.tags()["ADADINO_CLASSES"]) == ["lake", "field", "house"]
        assert "1 lake, 2 field, 3 house" in raster.descriptions[0]
        assert raster.overviews(1) is not None
    names = (folder / "classes" / "to.tif.aux.xml").read_text()
    listed = [line.strip() for line in names.splitlines() if "<Category>" in line]
    wanted = ["no change", "lake", "field", "house"]
    assert listed == [f"<Category>{name}</Category>" for name in wanted]
    style = (folder / "classes" / "from.qml").read_text()
    assert 'label="house"' in style
    assert 'color="#46505a"' in style


def test_polygons_are_of_one_kind_each_and_sum_to_the_matrix(told):
    folder, result = told
    frame = gpd.read_file(folder / "v.gpkg", layer="change")
    assert list(frame.columns[:4]) == ["id", "from", "to", "area_m2"]
    assert {"prob_mean", "prob_max", "prob_min"} <= set(frame.columns)
    assert (frame["from"] != frame["to"]).all()
    assert frame["area_m2"].is_monotonic_decreasing
    assert frame["id"].tolist() == list(range(1, len(frame) + 1))
    names = list(CLASSES.names)
    for (start, end), area in frame.groupby(["from", "to"])["area_m2"].sum().items():
        at = names.index(start), names.index(end)
        assert result.transitions.amount[at] == pytest.approx(area / 1e4, rel=1e-9)
    assert result.transitions.amount.sum() == pytest.approx(frame["area_m2"].sum() / 1e4)
    # Every polygon lies on pixels of its own classes.
    before, after = (read(folder / "classes" / f"{end}.tif") for end in ("from", "to"))
    with rasterio.open(folder / "c.tif") as raster:
        for one in frame.head(5).itertuples():
            point = one.geometry.representative_point()
            at = raster.index(point.x, point.y)
            row = frame.loc[one.Index]
            assert names[before[at] - 1] == row["from"]
            assert names[after[at] - 1] == row["to"]


def test_the_matrix_is_a_table_in_hectares_with_sums(told):
    folder, result = told
    with (folder / "classes" / "transitions.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["from \\ to (ha)", "lake", "field", "house", "total"]
    assert [row[0] for row in rows[1:]] == ["lake", "field", "house", "total"]
    values = np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])
    assert values[:3, :3] == pytest.approx(result.transitions.amount, abs=6e-5)
    assert values[3, 3] == pytest.approx(result.transitions.amount.sum(), abs=6e-5)


def test_pictures_are_drawn(told):
    folder, _ = told
    for name in ("transitions.png", "overview.png"):
        with Image.open(folder / "classes" / name) as picture:
            assert min(picture.size) > 300
            assert len(picture.convert("RGB").getcolors(2**20)) > 20


def test_an_interrupted_run_goes_on_to_the_same_bytes(told, scene, tmp_path):
    folder, _ = told

    class StopError(Exception):
        pass

    def stop(done, total, message=""):
        if done > 9:
            raise StopError

    with pytest.raises(StopError):
        run(scene, tmp_path, progress=stop)
    work = tmp_path / ".c.tif.work"
    assert (work / "classes.u8").stat().st_size > 0
    assert not (tmp_path / "classes").exists()
    calls = []
    model = a_semantic_model()
    forward = model.forward
    model.forward = lambda *a, **o: calls.append(1) or forward(*a, **o)
    run(scene, tmp_path, model, resume=True)
    assert 0 < len(calls) < 15
    for name in (
        "c.tif",
        "v.gpkg",
        "classes/from.tif",
        "classes/to.tif",
        "classes/transitions.csv",
    ):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_rows_without_their_classes_do_not_count(tmp_path):
    journal = Journal(tmp_path, (4, 3), {}, classes=True)
    with journal.open():
        journal.append(0, np.zeros((2, 3), np.float32), np.ones((2, 2, 3), np.uint8))
    assert Journal(tmp_path, (4, 3), {}, classes=True).done == 2
    (tmp_path / "classes.u8").write_bytes(b"")
    assert Journal(tmp_path, (4, 3), {}, classes=True).done == 0


@pytest.mark.slow
def test_the_least_area_holds_for_classes_too(scene, tmp_path):
    result = run(scene, tmp_path, min_area=4.0)
    assert (result.polygons["area_m2"] >= 4).all()
    change = read(tmp_path / "c.tif") == 1
    assert ((read(tmp_path / "classes" / "from.tif") > 0) == change).all()


def test_places_without_data_have_no_class(scene, tmp_path):
    before = rewrite(scene[0], tmp_path / "hole.tif", hole, nodata=0)
    run((before, scene[1]), tmp_path)
    values = read(tmp_path / "classes" / "to.tif")
    assert (values[:40, :50] == MASK.nodata).all()
    assert (read(tmp_path / "c.tif")[:40, :50] == MASK.nodata).all()


def hole(data):
    data = np.maximum(data, 1)
    data[:, :40, :50] = 0
    return data


@pytest.mark.filterwarnings("ignore::adadino.errors.VectorWarning")
def test_without_coordinates_the_matrix_counts_pixels(tmp_path):
    images = []
    for name in ("a.png", "b.png"):
        pixels = np.random.default_rng(len(images)).integers(0, 256, (64, 64, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / name)
        images.append(tmp_path / name)
    result = run(images, tmp_path)
    assert result.transitions.unit == "pixels"
    assert result.transitions.amount.sum() == (read(tmp_path / "c.tif") == 1).sum()
    assert "area_px" in result.polygons


@pytest.mark.slow
def test_on_a_geographic_grid_the_matrix_is_the_polygons_area(scene, tmp_path):
    places = {"crs": "EPSG:4326", "transform": rasterio.Affine(5e-6, 0, 11, 0, -5e-6, 60)}
    images = [
        rewrite(path, tmp_path / f"{i}.tif", lambda data: data, **places)
        for i, path in enumerate(scene)
    ]
    result = run(images, tmp_path)
    area = result.polygons["area_m2"].sum() / 1e4
    assert result.transitions.amount.sum() == pytest.approx(area, rel=1e-4)


@pytest.mark.slow
def test_no_change_writes_empty_outputs_with_all_their_columns(scene, tmp_path):
    result = run(scene, tmp_path, threshold=0.999999)
    assert result.transitions.amount.sum() == 0
    assert {"from", "to", "area_m2"} <= set(result.polygons.columns)
    assert (tmp_path / "classes" / "transitions.png").exists()


def test_a_model_of_change_alone_has_no_classes_to_write(scene, tmp_path):
    with pytest.raises(ConfigError, match="where something changed, not what into"):
        run(scene, tmp_path, a_model())
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder_for_classes(scene, tmp_path):
    (tmp_path / "classes").write_text("mine")
    with pytest.raises(WriteError, match="classes is a file; give --classes the name of a folder"):
        run(scene, tmp_path)
    assert files(tmp_path) == {"classes": b"mine"}


def test_classes_that_are_there_are_not_replaced(told, scene):
    folder, _ = told
    (folder / "c.tif").rename(folder / "c2.tif")
    (folder / "v.gpkg").rename(folder / "v2.gpkg")
    (folder / "p.tif").rename(folder / "p2.tif")
    try:
        with pytest.raises(WriteError, match=r"from\.tif exists"):
            run(scene, folder)
    finally:
        for name in ("c.tif", "v.gpkg", "p.tif"):
            (folder / f"{name[0]}2{name[1:]}").rename(folder / name)


def test_a_disk_that_refuses_leaves_nothing(scene, tmp_path, monkeypatch):
    def broken(*arguments, **options):
        raise WriteError("no space")

    monkeypatch.setattr("adadino.reporting.sankey.draw_sankey", broken)
    with pytest.raises(WriteError, match="no space"):
        run(scene, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".c.tif.work"}


def test_a_result_without_a_folder_tells_so(scene):
    result = predict_scene(
        *scene, a_semantic_model(), options=SceneOptions(tile=64, overlap=16), device="cpu"
    )
    assert {"from", "to"} <= set(result.polygons.columns)
    assert result.transitions.unit == "ha"
    with pytest.raises(InputError, match="the classes were not written"):
        result.write_class_sheet(Path("x.png"))


def test_the_command_says_what_became_of_what(tmp_path, monkeypatch, capsys):
    from adadino.cli.app import main

    model = save(a_semantic_model(), tmp_path / "model", with_backbone=True)
    before, after, _ = write_geotiff_pair(tmp_path, 7, (96, 96))
    given = [before, after, "-o", tmp_path / "c.tif", "--model", model, "--json", "-q",
             "--tile", 64, "--overlap", 16, "--classes", tmp_path / "classes"]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["adadino", "predict", *map(str, given)])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    said = json.loads(capsys.readouterr().out)
    assert said["transitions"]["unit"] == "ha"
    assert set(said["transitions"]["from"]) == {"lake", "field", "house"}
    assert any(" to " in line and line.endswith(" ha") for line in said["summary"])
    assert str(tmp_path / "classes" / "from.tif") in said["outputs"]
