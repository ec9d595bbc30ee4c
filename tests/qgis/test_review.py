"""*Export for review* and the review panel in a real QGIS; verdicts come back to the command."""

from __future__ import annotations

import json
import subprocess

import geopandas
import numpy as np
import pyogrio
import pytest
import rasterio

pytestmark = pytest.mark.slow


@pytest.fixture
def found(tmp_path):
    """A mask with four areas, and their probability."""
    mask, likely = np.zeros((64, 64), np.uint8), np.full((64, 64), 0.1, np.float32)
    for place in ((4, 4), (4, 40), (40, 4), (40, 40)):
        mask[place[0] : place[0] + 12, place[1] : place[1] + 9] = 1
    likely[mask == 1] = 0.8
    grid = {"transform": rasterio.Affine(2, 0, 500_000, 0, -2, 5_000_000), "crs": "EPSG:32633"}
    size = {"driver": "GTiff", "width": 64, "height": 64, "count": 1}
    paths = tmp_path / "mask.tif", tmp_path / "likely.tif"
    for path, data in zip(paths, (mask, likely), strict=True):
        with rasterio.open(path, "w", dtype=data.dtype, **grid, **size) as raster:
            raster.write(data, 1)
    return paths


def test_areas_are_judged_by_key_and_the_verdicts_come_back(qgis, command, found, tmp_path):
    areas = tmp_path / "to judge.gpkg"
    said = qgis.inside("review.py", command, *found, areas, tmp_path / "panel.png")
    assert said["results"]["POLYGON_COUNT"] == 4
    assert said["groups"]["Review of to judge"][0]["renderer"] == "categorizedSymbol"
    assert said["panel"].startswith("0 of 4 judged")
    text, *formats = said["shown"]
    assert "note <img src=" in text  # letters, as formats say, and not too many
    assert len(text) < 400
    assert formats == [0, 0]  # Qt.PlainText
    assert said["after"] == "2 of 4 judged: 1 right, 1 wrong, 0 unsure"
    assert said["end"] == "2 of 4 judged: 1 right, 0 wrong, 1 unsure"
    assert said["views"] > 1  # the map flies along
    assert said["typed"] == "aru"  # letters in the note are no verdicts
    assert said["selected"] == 0  # a selection would cover what is judged
    verdicts = [row[1:3] for row in said["rows"]]
    assert verdicts == [["right", ""], ["unsure", "a shadow"], ["", ""], ["", ""]]
    assert said["rows"][0][3]
    assert said["rows"][0][4].endswith("Z")

    back = [command, "judge", "import", said["results"]["REVIEW"], areas, "--json"]
    done = subprocess.run(back, capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout)["summary"]
    assert (summary["judged"], summary["right"], summary["unsure"]) == (2, 1, 1)


def test_verdicts_are_not_put_where_qgis_deletes_them(qgis, command, found):
    qgis.use(command)
    done = qgis.algorithm("exportforreview", MASK=found[0], POLYGONS="TEMPORARY_OUTPUT")
    assert done.returncode
    assert "the verdicts would be lost" in done.stdout + done.stderr


def test_a_review_goes_on_with_the_verdicts_of_its_layer(qgis, command, found, tmp_path):
    qgis.use(command)
    areas = tmp_path / "a.gpkg"
    for verdict in ("wrong", ""):
        done = qgis.algorithm("exportforreview", MASK=found[0], POLYGONS=areas)
        assert done.returncode == 0, done.stdout + done.stderr
        frame = geopandas.read_file(areas)
        if verdict:
            frame.loc[frame["rank"] == 1, "verdict"] = verdict
            [(name, _)] = pyogrio.list_layers(areas)
            frame.to_file(areas, layer=name)
    assert "holds a review already; it goes on" in done.stdout
    assert list(frame.loc[frame["rank"] == 1, "verdict"]) == ["wrong"]


def test_a_sample_is_judged_by_key_and_the_map_assessed(qgis, command, found, tmp_path):
    said = qgis.inside("sample.py", command, found[0], tmp_path / "sample.gpkg")
    assert said["drawn"]["PIXEL_COUNT"] >= 12  # each stratum has a least number
    assert said["groups"]["Sample of mask"][0]["renderer"] == "categorizedSymbol"
    assert "are not judged" in said["early"]
    assert said["buttons"] == ["Change (A)", "No change (R)", "Unsure (U)"]
    figures = said["figures"]
    assert figures["OVERALL"] == 1  # the map itself was the judge
    assert "Olofsson" in (tmp_path / "sample.gpkg.html").read_text()
    assert figures["USERS"] == figures["PRODUCERS"] == 1
    assert figures["AREA"] == pytest.approx(4 * 12 * 9 * 4, rel=0.01)
    assert any(line.startswith("Overall accuracy: 100.0 ± 0.0 %") for line in said["infos"])


def test_verdicts_on_areas_are_no_sample(qgis, command, found, tmp_path):
    qgis.use(command)
    areas = tmp_path / "a.gpkg"
    assert qgis.algorithm("exportforreview", MASK=found[0], POLYGONS=areas).returncode == 0
    done = qgis.algorithm("assessaccuracy", SAMPLE=areas)
    assert done.returncode
    assert "no random sample of the map" in done.stdout + done.stderr
