"""QGIS styles: well formed, with what QGIS looks for when it loads a layer."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from adadino.geo.write.cog import CHANGE_COLOUR, MASK
from adadino.geo.write.qml import OUTLINE_COLOUR, write_qml

RED = "#{:02x}{:02x}{:02x}".format(*CHANGE_COLOUR)


def style(folder: Path, *kinds: str) -> ElementTree.Element:
    path = folder / "style.qml"
    write_qml(path, *kinds)  # type: ignore[arg-type]
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE qgis ")
    root = ElementTree.fromstring(text)
    assert root.tag == "qgis"
    assert root.get("version", "").startswith("3.")
    assert root.get("styleCategories") == "AllStyleCategories"
    return root


def renderer_of(root: ElementTree.Element, kind: str) -> ElementTree.Element:
    (renderer,) = root.findall("pipe/rasterrenderer")
    assert renderer.attrib.items() >= {
        "type": kind, "band": "1", "opacity": "1", "alphaBand": "-1", "nodataColor": ""
    }.items()  # fmt: skip
    # "None" keeps the style's own limits; anything else makes QGIS compute its own.
    assert renderer.findtext("minMaxOrigin/limits") == "None"
    assert root.find("pipe/provider/resampling").get("enabled") == "false"
    return renderer


def test_a_mask_is_a_palette_of_no_change_and_change(tmp_path):
    entries = renderer_of(style(tmp_path, "mask"), "paletted").findall("colorPalette/paletteEntry")
    said = {e.get("value"): (e.get("color"), e.get("alpha"), e.get("label")) for e in entries}
    assert said["0"][1:] == ("0", "no change")
    assert said["1"] == (RED, "160", "change")
    # Nodata is the raster's business: QGIS leaves such pixels out before it looks at the palette.
    assert set(said) == {"0", "1"}
    assert MASK.nodata == 255


def test_a_probability_is_a_ramp_over_0_to_1(tmp_path):
    renderer = renderer_of(style(tmp_path, "probability"), "singlebandpseudocolor")
    assert (renderer.get("classificationMin"), renderer.get("classificationMax")) == ("0", "1")
    (shader,) = renderer.findall("rastershader/colorrampshader")
    assert shader.get("colorRampType") == "INTERPOLATED"
    assert (shader.get("minimumValue"), shader.get("maximumValue")) == ("0", "1")
    items = [(float(i.get("value")), int(i.get("alpha"))) for i in shader.findall("item")]
    assert items == sorted(items)
    assert (items[0], items[-1]) == ((0, 0), (1, 255))
    assert {i.get("color") for i in shader.findall("item")} == {RED}
    assert [i.get("label") for i in shader.findall("item")][2] == "50%"


def test_polygons_are_outlines(tmp_path):
    root = style(tmp_path, "polygons")
    assert root.find("pipe") is None
    (renderer,) = root.findall("renderer-v2")
    assert renderer.get("type") == "singleSymbol"
    (symbol,) = renderer.findall("symbols/symbol")
    assert (symbol.get("type"), symbol.get("name")) == ("fill", "0")
    (layer,) = symbol.findall("layer")
    assert layer.get("class") == "SimpleFill"
    options = {o.get("name"): o.get("value") for o in layer.findall("Option/Option")}
    assert options["style"] == "no"
    assert options["outline_color"] == ",".join(map(str, (*OUTLINE_COLOUR, 255)))
    assert root.findtext("layerGeometryType") == "2"


def test_one_file_serves_a_raster_and_polygons_of_one_name(tmp_path):
    root = style(tmp_path, "mask", "polygons")
    assert [child.tag for child in root] == ["pipe", "renderer-v2", "layerGeometryType"]


@pytest.mark.parametrize("kind", ["mask", "probability", "polygons"])
def test_two_runs_give_the_same_bytes(tmp_path, kind):
    for name in ("a.qml", "b.qml"):
        write_qml(tmp_path / name, kind)
    assert (tmp_path / "a.qml").read_bytes() == (tmp_path / "b.qml").read_bytes()
