"""What a judged layer may not do: open another file."""

from __future__ import annotations

import json

import geopandas as gpd
import pytest
import shapely

from adadino.errors import InputError
from adadino.geo.read.trust import check_layer, check_system, check_tiff
from adadino.review.intake import read_layer


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.geojson"
    gpd.GeoDataFrame({"word": ["x"]}, geometry=[shapely.box(0, 0, 1, 1)], crs=32650).to_file(path)
    return path


@pytest.mark.parametrize("lead", ["", "\n  ", "\ufeff"])
def test_a_recipe_under_the_name_of_a_layer_is_refused(tmp_path, secret, lead):
    source = f"<SrcDataSource>{secret}</SrcDataSource>"
    layer = f'<OGRVRTLayer name="secret">{source}</OGRVRTLayer>'
    path = tmp_path / "judged.gpkg"
    path.write_text(f"{lead}<OGRVRTDataSource>{layer}</OGRVRTDataSource>", encoding="utf-8")
    with pytest.raises(InputError, match="is no GeoPackage"):
        read_layer(path, 32650, [])
    command = f"gdal vector pipeline ! read {secret}"
    said = {"type": "gdal_streamed_alg", "command_line": command}
    path.write_text(lead + json.dumps(said), encoding="utf-8")
    with pytest.raises(InputError, match="recipe"):
        read_layer(path, 32650, [])


@pytest.mark.parametrize("end", ["gpkg", "geojson", "fgb", "shp"])
def test_plain_layers_are_read(tmp_path, secret, end):
    path = tmp_path / f"layer.{end}"
    gpd.read_file(secret).to_file(path)
    check_layer(path)
    assert len(read_layer(path, gpd.read_file(secret).crs, [])) == 1


def test_a_system_that_names_a_grid_is_refused():
    said = 'BOUNDCRS[PARAMETERFILE["Latitude and longitude difference file","/etc/passwd"]]'
    with pytest.raises(InputError, match="names other files"):
        check_system(said, "judged.gpkg")


def test_a_map_is_a_tiff(tmp_path):
    path = tmp_path / "mask.tif"
    path.write_text("<VRTDataset/>")
    with pytest.raises(InputError, match="is no TIFF"):
        check_tiff(path)
