"""*Adapt a model* in a real QGIS."""

from __future__ import annotations

import geopandas
import pyogrio
import pytest

from adadino.data.synthetic import write_geotiff_pair
from adadino.source import read_settings
from tests.training.adapt.test_adapt import base, data  # noqa: F401  (fixtures)

pytestmark = pytest.mark.slow


def test_a_model_is_adapted_to_labelled_tiles(qgis, command, tmp_path, base, data):  # noqa: F811
    qgis.use(command)
    mine = tmp_path / "mine"
    given = {"DATA": data, "MODEL": base, "OUTPUT": mine, "ANYWAY": "true"}
    done = qgis.algorithm("adaptmodel", **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (mine / "model.safetensors").is_file()
    assert "KEPT:\tnew" in done.stdout
    assert "choose it in Detect change" in done.stdout
    assert "F1 " in done.stdout
    again = qgis.algorithm("adaptmodel", **given)
    assert again.returncode
    assert "--overwrite is 'Replace a model that is in the folder' in this dialog" in again.stderr


def test_a_model_is_adapted_to_a_judged_layer(qgis, command, tmp_path, base):  # noqa: F811
    """Detect, export, judge, adapt, and detect with the new model: all in QGIS."""
    qgis.use(command)
    before, after, truth = write_geotiff_pair(tmp_path / "pair", 3, 512)
    dates = {"BEFORE": before, "AFTER": after}
    areas, mine = tmp_path / "areas.gpkg", tmp_path / "mine"
    done = qgis.algorithm("exportforreview", MASK=truth, POLYGONS=areas)
    assert done.returncode == 0, done.stdout + done.stderr
    frame = geopandas.read_file(areas)
    frame["verdict"] = ["right", "wrong", *["right"] * (len(frame) - 2)]
    [(name, _)] = pyogrio.list_layers(areas)
    frame.to_file(areas, layer=name)
    given = {"JUDGED": areas, "MODEL": base, "OUTPUT": mine, "ANYWAY": "true", "STEPS": 1, **dates}
    done = qgis.algorithm("adaptmodel", **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "KEPT:\tnew" in done.stdout
    assert read_settings(mine)["domain"]["resolution_m"] == [0.5, 0.5]
    done = qgis.algorithm("detectchange", **dates, MODEL=mine, MASK=tmp_path / "mask.tif")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "model: mine" in done.stdout


def test_what_is_missing_is_said(qgis, command, found_layer, tmp_path):
    qgis.use(command)
    for given, message in (
        ({}, "either a judged layer with its two images, or a folder"),
        ({"JUDGED": found_layer}, "needs both images of its map"),
        ({"DATA": tmp_path, "OUTPUT": "TEMPORARY_OUTPUT"}, "QGIS deletes temporary ones"),
    ):
        done = qgis.algorithm("adaptmodel", **{"OUTPUT": tmp_path / "mine", **given})
        assert done.returncode
        assert message in done.stdout + done.stderr
    assert not (tmp_path / "mine" / "model.safetensors").exists()


@pytest.fixture
def found_layer(tmp_path):
    import geopandas
    import shapely

    path = tmp_path / "judged.gpkg"
    frame = geopandas.GeoDataFrame(
        {"id": [1], "verdict": ["right"]}, geometry=[shapely.box(0, 0, 1, 1)], crs="EPSG:32633"
    )
    frame.to_file(path)
    return path
