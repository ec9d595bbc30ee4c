"""`adadino predict`: what it prints, what it writes, and what it says of bad input."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import rasterio
import torch
from affine import Affine

from adadino.checkpoint import save
from adadino.data.synthetic import write_geotiff_pair
from adadino.model.adadino import AdaDINO
from tests.conftest import SMALL, randomise

SIZE = (150, 210)
SMALL_TILES = ("--tile", 64, "--overlap", 16)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model") / "model"
    save(randomise(AdaDINO(SMALL), 0.35).eval(), folder, with_backbone=True)
    return folder


@pytest.fixture(scope="module")
def dates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dates")
    before, after, _ = write_geotiff_pair(folder, 7, SIZE)
    return before, after


@pytest.fixture
def predict(adadino, model):
    def run(*arguments):
        return adadino("predict", *arguments, "--model", model, *SMALL_TILES, "--device", "cpu")

    return run


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rewrite(source, target, change=lambda data: data, **profile):
    """Copy a raster with other values or another profile."""
    with rasterio.open(source) as raster:
        data, new = change(raster.read()), raster.profile | profile
    with rasterio.open(target, "w", **new) as raster:
        raster.write(data)
    return target


def test_everything_that_can_be_asked_for_is_written_and_listed(predict, dates, tmp_path):
    out = tmp_path / "out"
    asked = {
        "-o": "c.tif",
        "--probability": "p.tif",
        "--vector": "c.gpkg",
        "--overview": "look.png",
        "--stac": "item.json",
    }
    options = [part for option, name in asked.items() for part in (option, out / name)]
    more = ("--readers", 1, "--batch", 3, "--dates", "2009-06-01,2018-07-15")
    said = predict(*dates, *options, "--json", *more)
    assert said.code == 0, said.err
    listed = {path.rsplit("/", 1)[-1] for path in json.loads(said.out)["outputs"]}
    assert "predicting: " in said.err  # progress has its own stream: --json does not silence it
    assert listed == {*asked.values(), "c.qml", "p.qml"}
    assert set(files(out)) == listed
    item = json.loads((out / "item.json").read_text())
    assert {"mask", "probability", "polygons", "overview"} <= set(item["assets"])
    assert item["properties"]["start_datetime"] == "2009-06-01T00:00:00Z"
    assert item["properties"]["adadino:datetime_source"] == "given"


def test_batch_and_readers_change_nothing(predict, dates, tmp_path):
    for name, options in {"a": (), "b": ("--batch", 5, "--readers", 3)}.items():
        assert predict(*dates, "-o", tmp_path / name / "c.tif", *options).code == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")


@pytest.mark.parametrize(
    "options",
    [
        ("--batch", "many"),
        ("--bands", "1,2.5,3"),
        ("--scale", "0"),
        ("--readers", 0),
    ],
)
def test_a_wrong_option_is_a_wrong_command_line(predict, dates, tmp_path, options):
    said = predict(*dates, "-o", tmp_path / "c.tif", *options)
    assert said.code == 2
    assert options[0] in said.err
    assert not files(tmp_path)


def test_progress_tells_tiles_speed_and_time_left(predict, dates, tmp_path):
    holed = rewrite(dates[0], tmp_path / "holed.tif", _without_left_half, nodata=0)
    said = predict(holed, dates[1], "-o", tmp_path / "out" / "c.tif")
    last = [line for line in said.err.splitlines() if line.startswith("predicting")][-1]
    assert last.startswith("predicting: 15/15 ")
    assert " MP/s, 0 s left, 6 empty" in last
    told = said.err.splitlines()
    assert "predicting: 0/15" in told
    assert all(":" in line for line in told)  # phases are for the bar and the page


def test_an_interrupted_run_goes_on_with_resume(predict, dates, tmp_path, monkeypatch):
    command = (*dates, "-o", tmp_path / "out" / "c.tif")
    calls, forward = [], AdaDINO.forward

    def interrupted(self, *arguments, **options):
        calls.append(1)
        if len(calls) == 12:
            raise KeyboardInterrupt
        return forward(self, *arguments, **options)

    monkeypatch.setattr(AdaDINO, "forward", interrupted)
    said = predict(*command)
    assert said.code == 130
    assert "--resume" in said.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".c.tif.work"]
    again = predict(*command)
    assert again.code == 1
    assert "--resume" in again.err
    assert "--overwrite" in again.err
    resumed = predict(*command, "--resume")
    assert resumed.code == 0, resumed.err
    assert predict(*dates, "-o", tmp_path / "whole" / "c.tif").code == 0
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def _without_left_half(data):
    data[:, :, : data.shape[2] // 2] = 0
    return data


def _truncated(before, after, folder):
    data = after.read_bytes()
    (folder / "cut.tif").write_bytes(data[: len(data) // 2])
    return before, folder / "cut.tif"


def _text(before, after, folder):
    (folder / "text.tif").write_text("these are no pixels\n")
    return before, folder / "text.tif"


def _empty(before, after, folder):
    (folder / "empty.tif").touch()
    return folder / "empty.tif", after


def _missing(before, after, folder):
    return before, folder / "nothing.tif"


def _one_pixel(before, after, folder):
    def cut(data):
        return data[:, :1, :1]

    shape = {"width": 1, "height": 1, "tiled": False}
    return tuple(rewrite(path, folder / path.name, cut, **shape) for path in (before, after))


def _all_nodata(before, after, folder):
    return before, rewrite(after, folder / "blank.tif", np.zeros_like, nodata=0)


def _same_file(before, after, folder):
    return before, before


def _same_bytes(before, after, folder):
    return before, shutil.copyfile(before, folder / "copy.tif")


def _two_bands(before, after, folder):
    def cut(data):
        return data[:2]

    return before, rewrite(after, folder / "two.tif", cut, count=2, photometric="MINISBLACK")


def _no_crs(before, after, folder):
    return before, rewrite(after, folder / "nowhere.tif", crs=None)


def _elsewhere(before, after, folder):
    moved = Affine.translation(1e5, 0) * Affine(0.5, 0, 5e5, 0, -0.5, 5.8e6)
    return before, rewrite(after, folder / "far.tif", transform=moved)


def _flat(before, after, folder):
    return before, rewrite(after, folder / "flat.tif", transform=Affine(0.5, 0, 5e5, 0, 0, 5.8e6))


def _not_a_number(before, after, folder):
    nan = float("nan")
    return before, rewrite(after, folder / "nan.tif", transform=Affine(nan, 0, 5e5, 0, -0.5, 5.8e6))


BAD = {
    _truncated: "truncated or damaged",
    _text: "give a file GDAL reads",
    _empty: "is empty",
    _missing: "there is no file",
    _one_pixel: "1 x 1",
    _all_nodata: "nothing to compare",
    _same_file: "same image",
    _same_bytes: "same image",
    _two_bands: "band",
    _no_crs: "coordinate",
    _elsewhere: "share no whole pixel",
    _flat: "transform",
    _not_a_number: "transform",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_bad_images_are_one_sentence_and_no_file(predict, dates, tmp_path, spoil):
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    pair = spoil(*dates, inputs)
    said = predict(*pair, "-o", out / "c.tif", "--vector", out / "c.gpkg", "-q")
    assert_refused(said, BAD[spoil])
    assert not out.exists() or not list(out.iterdir())


def _beside_a_file(before, out):
    (out / "file").write_text("")
    return "-o", out / "file" / "c.tif"


BAD_NAMES = {
    "in a file": (_beside_a_file, "cannot write"),
    "an input": (lambda before, out: ("-o", before), "is an input"),
    "a folder": (lambda before, out: ("-o", out), "is a folder"),
    "a text": (lambda before, out: ("-o", out / "c.txt"), "end it in .tif"),
    "png with coordinates": (lambda before, out: ("-o", out / "c.png"), "coordinates"),
    "twice": (
        lambda before, out: ("-o", out / "c.tif", "--probability", out / "c.tif"),
        "two outputs",
    ),
    "one style": (
        lambda before, out: ("-o", out / "c.tif", "--probability", out / "c.tiff"),
        "share the style",
    ),
    "no layer": (lambda before, out: ("-o", out / "c.tif", "--vector", out / "c.doc"), ".gpkg"),
    "no picture": (lambda before, out: ("-o", out / "c.tif", "--overview", out / "c.bmp"), ".png"),
    "no item": (lambda before, out: ("-o", out / "c.tif", "--stac", out / "c.xml"), ".json"),
}


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names_are_one_sentence_and_no_work(predict, dates, tmp_path, monkeypatch, name):
    def never(self, *arguments, **options):
        raise AssertionError("the model ran")

    monkeypatch.setattr(AdaDINO, "forward", never)
    names, reason = BAD_NAMES[name]
    said = predict(*dates, *names(dates[0], tmp_path), "-q")
    assert_refused(said, reason)
    assert {path.name for path in tmp_path.iterdir()} <= {"file"}


@pytest.mark.parametrize("room", [20_000, 130_000], ids=["rows", "picture"])
def test_a_full_disk_leaves_no_output_and_the_run_goes_on_later(predict, dates, tmp_path, room):
    """The second size holds the rows and the mask, but not the last file."""
    resource = pytest.importorskip("resource")
    out = tmp_path / "out"
    command = (*dates, "-o", out / "c.tif", "--overview", out / "look.png", "-q")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        said = predict(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_refused(said, "cannot write")
    assert {path.name for path in out.iterdir()} <= {".c.tif.work"}
    assert predict(*command, "--resume").code == 0
    assert set(files(out)) == {"c.tif", "c.qml", "look.png"}


def assert_refused(said, reason):
    assert said.code == 1
    assert said.out == ""
    sentence = [line for line in said.err.splitlines() if "warning" not in line]
    assert len(sentence) == 1, said.err
    assert sentence[0].startswith("adadino: ")
    assert sentence[0].endswith(".")
    assert reason in sentence[0]


def test_the_engine_is_chosen_by_name(predict, dates, tmp_path):
    out = tmp_path / "c.tif"
    code, _, _ = predict(*dates, "-o", out, "--engine", "bf16", "-q")
    assert code == 0
    with rasterio.open(out) as raster:
        assert raster.tags()["ADADINO_ENGINE"] == "bf16"
    code, _, err = predict(*dates, "-o", tmp_path / "d.tif", "--engine", "fp8")
    assert code == 1
    assert "engine fp8 needs an NVIDIA GPU" in err
    assert not (tmp_path / "d.tif").exists()
