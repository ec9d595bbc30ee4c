"""*Detect change* in a real QGIS without windows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.qgis.conftest import ends, script
from tests.qgis.test_command import ENDLESS, OLDER

pytestmark = pytest.mark.slow

NEWER = f"""
import sys
if sys.argv[1:2] == ["predict"] and "--help" not in sys.argv:
    sys.argv[1] = sys.argv[-1] + ".child"
    exec({ENDLESS!r})
elif "--help" in sys.argv:
    print("--output --vector --json --overwrite")
else:
    print("0.2.0")
"""
"""A command that answers every question and never ends a prediction."""


def test_the_provider_lists_its_algorithms(qgis):
    listed = qgis.process("list").stdout
    assert "adadino:detectchange\tDetect change" in listed
    told = qgis.process("help", "adadino:detectchange").stdout
    assert "POLYGONS: <outputVector>" in told
    assert "Finds what changed" in told


def test_a_run_of_qgis_process_writes_what_it_says(qgis, command, model, dates, tmp_path):
    qgis.use(command)
    mask, areas = tmp_path / "m a s k.tif", tmp_path / "areas.gpkg"
    done = qgis.algorithm(
        "detectchange", BEFORE=dates[0], AFTER=dates[1], MODEL=model, MASK=mask, POLYGONS=areas
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert mask.exists()
    assert areas.exists()
    assert "POLYGON_COUNT:" in done.stdout
    assert "ResourceWarning" not in done.stderr
    # The folder's name holds a command; a shell would have run it.
    assert not Path("x").exists()
    assert not (dates[0].parent / "x").exists()


def test_the_command_is_found_without_a_setting(qgis, command, model, dates, tmp_path):
    qgis.use("")
    place = Path(qgis.environ["HOME"], ".local", "bin", "adadino")
    place.parent.mkdir(parents=True)
    place.symlink_to(command)
    try:
        done = qgis.algorithm(
            "detectchange",
            BEFORE=dates[0],
            AFTER=dates[1],
            MODEL=model,
            MASK=tmp_path / "m.tif",
        )
    finally:
        place.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(place) in done.stdout


def test_results_are_loaded_with_their_styles_in_a_group(qgis, command, model, dates, tmp_path):
    said = qgis.inside("load.py", command, *dates, model, tmp_path)
    [(title, layers)] = said["groups"].items()
    assert title == f"Change from {dates[0].stem} to {dates[1].stem}"
    assert said["loose"] == []
    assert [(layer["file"], layer["renderer"]) for layer in layers] == [
        ("areas.gpkg", "singleSymbol"),
        ("mask.tif", "paletted"),
        ("likely.tif", "singlebandpseudocolor"),
    ]
    assert all(layer["valid"] and layer["crs"] == "EPSG:32633" for layer in layers)
    assert said["percents"][-1] == 100
    assert len(said["percents"]) > 1  # not only at the end
    assert any("valid area changed, in" in line for line in said["infos"])


def test_cancel_is_at_once_and_ends_every_process(qgis, dates, tmp_path):
    endless = script(tmp_path / "adadino", NEWER)
    said = qgis.inside("cancel.py", endless, *dates, tmp_path)
    assert said["message"] == "Cancelled. No output was written."
    assert said["percents"][0] == 1
    child = int(Path(f"{dates[1]}.child").read_text())
    assert ends(child)
    assert not (tmp_path / "mask.tif").exists()


def test_parameters_are_kept_in_models_and_in_history(qgis, command, model, dates, tmp_path):
    said = qgis.inside("model.py", command, *dates, model, tmp_path)
    assert said["saved"]
    assert said["opened"]
    assert said["done"]
    assert said["kept"] == 12.5
    assert Path(said["polygons"]).exists()
    assert f"'AFTER':{str(dates[1])!r}" in said["history"]
    assert "'MIN_AREA':12.5" in said["history"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"MODEL": "/gone/model"}, "There is no model at /gone/model"),
        ({"DATE_BEFORE": "2020-01-01"}, "Only one date is given, 2020-01-01"),
        ({"AFTER": "/gone.tif"}, "/gone.tif"),
    ],
)
def test_bad_input_is_a_sentence_and_no_output(qgis, command, dates, tmp_path, parameters, message):
    qgis.use(command)
    given = {"BEFORE": dates[0], "AFTER": dates[1], "MASK": tmp_path / "m.tif", **parameters}
    done = qgis.algorithm("detectchange", **given)
    assert done.returncode
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_the_command_it_says_how_to_install_it(qgis, dates, tmp_path):
    qgis.use("")
    done = qgis.algorithm("detectchange", BEFORE=dates[0], AFTER=dates[1], MASK=tmp_path / "m.tif")
    assert done.returncode
    assert "pipx install 'adadino[geo]'" in done.stderr + done.stdout


def test_an_older_command_is_named_with_the_way_out(qgis, dates, tmp_path):
    qgis.use(script(tmp_path / "adadino", OLDER))
    done = qgis.algorithm(
        "detectchange", BEFORE=dates[0], AFTER=dates[1], MASK=tmp_path / "m.tif", THRESHOLD=0.4
    )
    assert done.returncode
    assert (
        "is adadino 0.1.0, whose `predict` does not know --overwrite" in done.stderr + done.stdout
    )


def test_a_batch_writes_every_row(qgis, command, model, dates, tmp_path):
    said = qgis.inside("batch.py", command, *dates, model, tmp_path, "finish")
    assert said["files"] == ["0.tif", "1.tif"]


def test_a_batch_is_cancelled_while_the_command_runs(qgis, dates, tmp_path):
    endless = script(tmp_path / "adadino", NEWER)
    said = qgis.inside("batch.py", endless, *dates, "", tmp_path, "cancel")
    assert said["files"] == []
    assert said["seconds"] < 60  # it would have run for twenty minutes
    assert ends(int(Path(f"{dates[1]}.child").read_text()))
