"""Files made to do harm, and the failures that the fuzzers have found: refused, each in words."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import zipfile
import zlib

import pytest
import rasterio
import yaml
from affine import Affine
from typer.testing import CliRunner

from adadino.area.ledger import Ledger
from adadino.area.pairs import read_pairs
from adadino.area.store import Folder
from adadino.area.units import Dates, Unit
from adadino.checkpoint import load, save
from adadino.cli.app import app
from adadino.data.images import read_image
from adadino.data.prepare.manifest import MANIFEST, Manifest
from adadino.data.prepare.run import prepare
from adadino.data.synthetic import write_geotiff_pair
from adadino.errors import AdaDINOError, ConfigError, DataError, InputError, WeightsError
from adadino.geo.grid import Grid, match
from adadino.geo.read.source import describe, open_dataset
from adadino.schema import build, override, read_yaml
from adadino.training.config import RunConfig
from adadino.web.jobs.manager import Manager
from adadino.web.jobs.records import RECORD, Job
from adadino.web.jobs.store import JobStore
from adadino.web.settings import Settings
from campaign.commands import SMALL, random_model
from campaign.targets import Said
from campaign.web import Requests


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A checkpoint file that is in order."""
    folder = save(random_model(SMALL), tmp_path_factory.mktemp("model"), with_backbone=True)
    return (folder / "model.safetensors").read_bytes()


def with_header(whole: bytes, change) -> bytes:
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + whole[8 + size :]


def enlarge(header):
    name = next(name for name in header if name != "__metadata__")
    header[name]["shape"] = [2**40, 2**20]


def overlap(header):
    a, b, *_ = (name for name in header if name != "__metadata__")
    header[a]["data_offsets"] = header[b]["data_offsets"]


def beyond(header):
    name = next(name for name in header if name != "__metadata__")
    header[name]["data_offsets"][1] = 2**50


@pytest.mark.parametrize("lie", [enlarge, overlap, beyond])
def test_a_safetensors_header_that_lies_is_refused(whole, tmp_path, lie):
    (tmp_path / "model.safetensors").write_bytes(with_header(whole, lie))
    with pytest.raises(WeightsError, match="cannot read"):
        load(tmp_path)


@pytest.mark.parametrize("size", [0, 2**40, 2**64 - 1])
def test_a_safetensors_header_of_an_impossible_size_is_refused(whole, tmp_path, size):
    (tmp_path / "model.safetensors").write_bytes(size.to_bytes(8, "little") + whole[8:])
    with pytest.raises(WeightsError, match="cannot read"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("cpgr", "width", 2**60),  # a petabyte of weights
        ("cpgr", "width", 2**16),  # some of it, which a laptop would try
        ("bscs", "hidden", 2**17),
        ("backbone", "depth", 10**9),  # a loop of a billion blocks
        ("backbone", "registers", 2**40),
    ],
)
def test_a_configuration_that_asks_for_more_than_the_file_holds_costs_nothing(
    whole, tmp_path, group, name, value
):
    def change(header):
        said = json.loads(header["__metadata__"]["adadino"])
        said["model"][group][name] = value
        header["__metadata__"]["adadino"] = json.dumps(said)

    (tmp_path / "model.safetensors").write_bytes(with_header(whole, change))
    with pytest.raises(WeightsError, match=r"must be at most|needs|does not fit"):
        load(tmp_path)


LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20)
)


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,  # nine to the nineteenth values in a kilobyte
        "model: &a\n  bscs: *a\n",  # inside itself
        "a: &a [*a]\n",
    ],
)
def test_yaml_aliases_that_never_end_are_refused(tmp_path, text):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match="without aliases"):
        read_yaml(tmp_path / "c.yaml")


@pytest.mark.parametrize("name", ["output", "preset", "train", "seed"])
def test_an_integer_that_python_cannot_write_is_refused(tmp_path, name):
    (tmp_path / "c.yaml").write_text(f"{name}: 0x{'f' * 5000}\n0x{'f' * 5000}: 1\n")
    with pytest.raises(ConfigError):
        build(RunConfig, read_yaml(tmp_path / "c.yaml"))


def test_brackets_that_never_close_cost_no_time(tmp_path, monkeypatch):
    # The parser looks ahead from every bracket: a second for each of these values, by a clock ten.
    monkeypatch.setattr(yaml, "safe_load", lambda _: pytest.fail("it was parsed"))
    deep = "[" * 12_000
    (tmp_path / "c.yaml").write_text(f"output: {deep}")
    with pytest.raises(ConfigError, match="more than 100 brackets"):
        read_yaml(tmp_path / "c.yaml")
    assert override({}, [f"output={deep}"]) == {"output": deep}


def test_a_message_is_as_short_as_it_can_be_and_keeps_the_way_out():
    words = str(AdaDINOError(f"{'x' * 10_000} is wrong; give another."))
    assert len(words) < 1300
    assert words.endswith("is wrong; give another.")


def test_a_picture_that_claims_more_pixels_than_there_are_is_refused(tmp_path):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    bomb += chunk(b"IDAT", zlib.compress(bytes(2**20))) + chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(bomb)
    with pytest.raises(DataError, match=r"bomb\.png"):
        read_image(tmp_path / "bomb.png")


@pytest.mark.parametrize(
    "document",
    [
        {"type": "Collection", "links": [{"rel": "child", "href": "s.json"}]},  # itself
        {"type": "Collection", "links": [{"rel": "item"}]},
        {"type": "Collection", "links": [{"rel": "item", "href": "\0"}]},
        {"type": "Collection", "links": "none"},
        {"type": "FeatureCollection", "features": [None]},
        {"type": "Feature", "assets": {"before": {}, "after": {}}},
        {"type": "Feature", "assets": ["before", "after"]},
        {"type": "Feature", "assets": {"visual": {"href": 3}}},
        {"type": "Feature", "properties": [], "bbox": [[0], 1]},
        {"type": "Feature", "assets": {"visual": {"href": "a"}}, "bbox": [[]],
         "properties": {"datetime": "2024"}},
    ],
)  # fmt: skip
def test_stac_that_is_none_is_refused(tmp_path, document):
    (tmp_path / "s.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"s\.json"):
        read_pairs(tmp_path / "s.json")


def test_json_deeper_than_python_goes_is_refused(tmp_path):
    deep = '{"a":' * 100_000
    (tmp_path / "s.json").write_text(deep)
    with pytest.raises(InputError, match="cannot read"):
        read_pairs(tmp_path / "s.json")
    (tmp_path / MANIFEST).write_text(deep)
    with pytest.raises(DataError, match="cannot be understood"):
        Manifest.load(tmp_path)


def test_a_table_with_a_zero_byte_or_an_endless_name(tmp_path):
    (tmp_path / "p.csv").write_bytes(b"before,after\na\x00.tif,b.tif\n")
    with pytest.raises(InputError, match="zero byte"):
        read_pairs(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_text(f"before,after,name\na.tif,b.tif,{'n' * 500}\n")
    assert len(read_pairs(tmp_path / "p.csv")[0].name) < 100  # it becomes a folder


@pytest.mark.parametrize("pairs", ["many", None, -0.5, True])
def test_a_manifest_whose_counts_are_none_is_refused(tmp_path, pairs):
    settings = {"name": "n", "variant": "v", "tile": 8, "seed": 0, "source_digest": "d"}
    split = {"pairs": pairs, "changed": 0.1, "fingerprint": "f"}
    said = {
        "settings": settings, "source": "s", "splits": {"train": split}, "scene_sizes": {},
        "as_expected": None, "version": "0", "notes": [],
    }  # fmt: skip
    (tmp_path / MANIFEST).write_text(json.dumps(said))
    with pytest.raises(DataError, match=r"splits\.train\.pairs"):
        Manifest.load(tmp_path)


@pytest.mark.parametrize("said", ["null", "NaN", "0", "[8]"])
def test_an_onnx_file_without_a_stride_is_refused(tmp_path, said):
    with pytest.raises(WeightsError, match="stride"):
        Said(tmp_path).take(f"adadino_format\t1\nstride\t{said}".encode())


@pytest.mark.parametrize(
    "record", [{}, {"files": []}, {"files": {"x": 3}}, {"files": {}, "changed": "1", "valid": 2}]
)
def test_a_record_that_is_none_counts_as_not_finished(tmp_path, record):
    unit = Unit(Dates("town", "a", "b"), 0, 0, 512, 512)
    done = tmp_path / "pairs" / "town" / "done"
    done.mkdir(parents=True)
    (done / f"{unit.name}.json").write_text(json.dumps(record))
    ledger = Ledger(Folder(tmp_path))
    assert ledger.record(unit) is None
    assert list(ledger.records(unit.dates, [unit], verify=False)) == [(unit, None)]


def test_a_zip_whose_names_are_not_what_they_say_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("ä.png", b"")  # not ASCII: the zip says that its names are UTF-8
    named = (tmp_path / "x.zip").read_bytes()
    (tmp_path / "x.zip").write_bytes(named.replace("ä".encode(), b"\xad\xad"))
    with pytest.raises(DataError, match="is not a readable zip: 'utf-8' codec"):
        prepare("folder", tmp_path / "x.zip", tmp_path / "out")


def test_a_zip_with_a_member_without_a_name_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a", b"")
    named = (tmp_path / "x.zip").read_bytes()
    (tmp_path / "x.zip").write_bytes(named.replace(b"a", b"\0"))  # where a name ends in a zip
    with pytest.raises(DataError, match="without a name"):
        prepare("folder", tmp_path / "x.zip", tmp_path / "out")


@pytest.mark.parametrize("name", ["9" * 400, "a" * 5000, "a/" + "b" * 5000])
def test_a_name_too_long_for_a_file_is_no_checkpoint(name):
    with pytest.raises(WeightsError, match="there is no"):
        load(name)


@pytest.mark.parametrize("name", ["a\udcff.tif", "a\0.tif"])
def test_a_name_that_is_no_text_is_refused(name):
    with pytest.raises(InputError, match=r"cannot open|no file"):
        open_dataset(name)


# --- what a GeoTIFF says of itself ---


@pytest.mark.parametrize("pixel", [(1e308, 0.5), (0.5, 1e200), (1e-320, 0.5), (1e-200, 1e-200)])
def test_pixels_larger_or_smaller_than_any_map_are_refused(pixel):
    crs = rasterio.CRS.from_epsg(32633)
    usual = Grid(crs, Affine(0.5, 0, 500_000, 0, -0.5, 5_000_000), 64, 64)
    odd = Grid(crs, Affine(pixel[0], 0, 500_000, 0, -pixel[1], 5_000_000), 64, 64)
    for pair in ((usual, odd), (odd, usual)):
        with pytest.raises(InputError, match="correct its georeferencing"):
            match(*pair)


def changed_tif(folder, *changes: tuple[bytes, bytes]):
    path, _, _ = write_geotiff_pair(folder, 7, 64)
    with rasterio.open(path, "r+") as raster:
        raster.update_tags(note="x")
    whole = path.read_bytes()
    for old, new in changes:
        assert old in whole
        whole = whole.replace(old, new)
    path.write_bytes(whole)
    return path


def test_a_key_of_the_coordinate_system_that_lies_is_refused(tmp_path):
    unit, units = (struct.pack("<HHHH", 3076, 0, count, 9001) for count in (1, 49))  # of metres
    size, flat = (struct.pack("<dd", 0.5, height) for height in (0.5, 0))
    path = changed_tif(tmp_path, (unit, units), (size, flat))
    with pytest.raises(InputError, match=r"before\.tif.*gdal_translate"):
        describe(path, "before")


@pytest.mark.slow
def test_a_tag_that_is_no_text_prints_no_traceback(tmp_path):
    path = changed_tif(tmp_path, (b"<Item name", b"<Item n\xffme"))
    done = subprocess.run(
        [sys.executable, "-m", "adadino", "predict", str(path), "none.tif", "-o", "c.tif"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["adadino: there is no file none.tif; check the name."]


# --- requests to the server ---


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    target = Requests(tmp_path_factory.mktemp("web"))
    target.seeds()
    return target


@pytest.mark.parametrize("origin", ["http://[", "http://[*a]", "//[1, 1, 1]"])
def test_an_origin_that_is_no_address_is_another_site(requests, origin):
    with pytest.raises(AdaDINOError, match="other sites"):
        requests.take(f"GET /api/jobs\nhost: localhost\norigin: {origin}\n\n".encode())


def test_a_query_that_is_no_text_is_no_fault(requests):
    requests.take(b"GET /api/jobs?\xec\xff\nhost: localhost\n\n")


@pytest.mark.parametrize("length", ["9" * 5000, "\xb2", "-1", "0x10"])
def test_a_length_that_is_no_number_is_no_fault(requests, length):
    head = "POST /api/jobs\nhost: localhost\ncontent-type: application/json\ncontent-length: "
    with pytest.raises(AdaDINOError, match=r"larger than|not JSON"):
        requests.take((head + length).encode("latin-1") + b"\n\n{")


@pytest.mark.parametrize(("line", "words"), [("GET /nothing", "/api/docs"), ("PUT /", "methods")])
def test_a_path_or_method_that_is_not_there_is_told_in_a_sentence(requests, line, words):
    with pytest.raises(AdaDINOError, match=words):
        requests.take(f"{line}\nhost: localhost\n\n".encode())


VIEW = {
    "width": 8, "height": 8, "crs": None, "wkt": None, "transform": [0.5, 0, 5, 0, -0.5, 5],
    "native": True, "extent": [0, 0, 4, 4], "resolution": 0.5, "levels": 1, "metres": None,
    "pixel_area": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"created": "long ago"}, {"state": "begun"}, {"source": "9f73a"}, {"bands": "1"},
        {"view": {"width": 3}}, {"view": {"mer": 1}}, {"result": []},
        {"view": VIEW | {"transform": [0, 0, 5, 0, -0.5, 5]}}, {"view": VIEW | {"width": -1}},
        {"view": VIEW | {"transform": []}},
    ],
)  # fmt: skip
def test_a_record_of_the_server_that_is_none_is_no_job(tmp_path, change):
    store = JobStore(tmp_path)
    job = Job("x" * 22, "n", "c", "m", "a", "b", "a", "b", "data")
    store.add(job, store.draft()[1])
    store.change(job.id, view=VIEW)
    record = tmp_path / job.id / RECORD
    assert [found.id for found in JobStore(tmp_path).all()] == [job.id]
    record.write_text(json.dumps(json.loads(record.read_text()) | change))
    assert JobStore(tmp_path).all() == []
    assert record.exists()  # whatever it is, it is not ours to remove


@pytest.mark.parametrize("result", ["", "{", "[1]", "[" * 100_000])
def test_a_server_starts_on_a_result_that_is_none_and_runs_the_job_again(tmp_path, result):
    store = JobStore(tmp_path)
    job = Job("x" * 22, "n", "c", "m", "a", "b", "a", "b", "data", state="running", attempts=1)
    store.add(job, store.draft()[1])
    (tmp_path / job.id / "result.json").write_text(result)
    Manager(Settings(tmp_path), store)
    assert store.get(job.id).state == "queued"


# --- folders ---


def test_a_folder_closed_to_us_is_no_smaller_dataset(tmp_path, monkeypatch):
    (tmp_path / "source" / "closed").mkdir(parents=True)
    look = os.scandir

    def closed(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(DataError, match=r"cannot look into .*closed: Permission denied"):
        prepare("folder", tmp_path / "source", tmp_path / "out")


# --- command lines ---


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["evaluate", "tiny", "--data", "9" * 400], "longer than the name of a file"),
        (["evaluate", "tiny", "--data", ".", "--split", "a" * 5000], "longer than|no folder"),
        (["predict-area", "--pairs", "9" * 400, "--out", "o"], "no file or folder"),
        (["predict", "a.tif", "b.tif", "-o", "c.tif", "--stac", "a" * 300], "longer than"),
        (["predict", "a.tif", "b\0.tif", "-o", "c.tif"], "zero byte"),
        (["predict", "a.tif", "9" * 400, "-o", "c.tif"], "no file|cannot open"),
        (["predict", "a.tif", "b.tif", "-o", "."], "is a folder"),
        (["predict", "a.tif", "b.tif", "-o", "c.tif", "--readers", "9" * 400], "at most 256"),
        (["predict", "a.tif", "b.tif", "-o", "c.tif", "--tile", "1048576"], "at most 16384"),
        (["prepare", "folder", "9" * 400, "out"], "longer than the name of a file"),
        (["prepare", "folder", "source", "\udcff"], "no text in UTF-8"),
        (["train", "--output", "9" * 400], "longer than the name of a file"),
    ],
)
def test_a_line_with_a_name_or_number_that_cannot_be_is_refused(line, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = CliRunner().invoke(app, line).exception
    assert isinstance(error, AdaDINOError), error
    assert re.search(words, str(error)), error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", ["999999999999", "9" * 400])
def test_a_picture_larger_than_any_has_no_cost(size):
    assert CliRunner().invoke(app, ["info", "--preset", "tiny", "--size", size]).exit_code == 2
