"""QGIS styles, so that the outputs look right when they are dropped on a map.

QGIS loads `change.qml` by itself for `change.tif` and for `change.gpkg` alike. One file can hold
both styles: a raster layer reads `pipe`, a vector layer reads `renderer-v2`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from adadino.files import write_atomic
from adadino.geo.write.cog import CHANGE_COLOUR, TRANSLUCENT

Kind = Literal["mask", "probability", "polygons"]

OUTLINE_COLOUR = (122, 18, 0)
"""Dark enough to be seen on the translucent mask."""
_RED = "#{:02x}{:02x}{:02x}".format(*CHANGE_COLOUR)


def write_qml(path: Path | str, *kinds: Kind) -> None:
    """Write the style of the outputs that share a name.

    Args:
        path: The output's name with the suffix `.qml`.
        kinds: `mask` or `probability` for a raster; `polygons`; or one of each.
    """
    write_atomic(path, qml_text(*kinds))


def qml_text(*kinds: Kind) -> str:
    """The style of outputs, as `write_qml` writes it."""
    root = Element("qgis", version="3.22", styleCategories="AllStyleCategories")
    builders = {"mask": _mask, "probability": _probability, "polygons": _polygons}
    for kind in kinds:
        builders[kind](root)
    return _document(root)


def _document(root: Element) -> str:
    ElementTree.indent(root)
    doctype = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n"
    return doctype + ElementTree.tostring(root, encoding="unicode") + "\n"


def classes_qml(classes: Sequence[tuple[int, tuple[int, int, int], str]]) -> str:
    """The style of a raster of classes: value, colour and what the legend says of each."""
    root = Element("qgis", version="3.22", styleCategories="AllStyleCategories")
    palette = SubElement(_raster(root, "paletted"), "colorPalette")
    for value, colour, label in classes:
        text = "#{:02x}{:02x}{:02x}".format(*colour)
        SubElement(palette, "paletteEntry", value=str(value), color=text, alpha="255", label=label)
    return _document(root)


def colours_qml(bands: Sequence[int], low: Sequence[float], high: Sequence[float]) -> str:
    """The style of an image in three of its bands, each from its black to its white value."""
    root = Element("qgis", version="3.22", styleCategories="AllStyleCategories")
    drawn = _raster(root, "multibandcolor")
    for colour, band, black, white in zip(("red", "green", "blue"), bands, low, high, strict=True):
        drawn.set(f"{colour}Band", str(band))
        stretch = SubElement(drawn, f"{colour}ContrastEnhancement")
        for name, text in (
            ("minValue", f"{black:g}"),
            ("maxValue", f"{white:g}"),
            ("algorithm", "StretchToMinimumMaximum"),
        ):
            SubElement(stretch, name).text = text
    return _document(root)


def _mask(root: Element) -> None:
    """Change in translucent red; no change is transparent, so that the image below stays visible.

    Nodata has no entry: the raster names its value, and QGIS draws no such pixel.
    """
    renderer = _raster(root, "paletted")
    palette = SubElement(renderer, "colorPalette")
    SubElement(palette, "paletteEntry", value="0", color="#000000", alpha="0", label="no change")
    SubElement(
        palette, "paletteEntry", value="1", color=_RED, alpha=str(TRANSLUCENT), label="change"
    )


def _probability(root: Element) -> None:
    """From transparent to red, from 0 to 1."""
    renderer = _raster(root, "singlebandpseudocolor")
    renderer.attrib.update(classificationMin="0", classificationMax="1")
    shader = SubElement(SubElement(renderer, "rastershader"), "colorrampshader")
    shader.attrib.update(
        colorRampType="INTERPOLATED",
        classificationMode="1",  # continuous: the items below are all there is
        clip="0",
        minimumValue="0",
        maximumValue="1",
    )
    for value in (0, 0.25, 0.5, 0.75, 1):
        alpha = str(round(255 * value))
        SubElement(shader, "item", value=str(value), color=_RED, alpha=alpha, label=f"{value:.0%}")


def _raster(root: Element, renderer: str) -> Element:
    pipe = SubElement(root, "pipe")
    # Whatever the user's default: interpolating two classes would invent a third.
    SubElement(
        SubElement(pipe, "provider"),
        "resampling",
        enabled="false",
        zoomedInResamplingMethod="nearestNeighbour",
        zoomedOutResamplingMethod="nearestNeighbour",
        maxOversampling="2",
    )
    drawn = SubElement(
        pipe, "rasterrenderer", type=renderer, band="1", opacity="1", alphaBand="-1", nodataColor=""
    )
    SubElement(drawn, "rasterTransparency")
    # The limits are ours, 0 and 1, and not to be estimated from what is on the screen.
    origin = SubElement(drawn, "minMaxOrigin")
    SubElement(origin, "limits").text = "None"
    SubElement(origin, "extent").text = "WholeRaster"
    SubElement(origin, "statAccuracy").text = "Estimated"
    return drawn


def _polygons(root: Element) -> None:
    """A dark red outline and no fill: it shows on the mask, and what changed shows inside."""
    renderer = SubElement(root, "renderer-v2", type="singleSymbol", symbollevels="0")
    symbol = SubElement(SubElement(renderer, "symbols"), "symbol", name="0", type="fill", alpha="1")
    layer = SubElement(symbol, "layer", attrib={"class": "SimpleFill"}, enabled="1", locked="0")
    options = SubElement(layer, "Option", type="Map")
    outline = ",".join(map(str, (*OUTLINE_COLOUR, 255)))
    for name, value in {
        "style": "no",
        "outline_style": "solid",
        "outline_color": outline,
        "outline_width": "0.5",
        "outline_width_unit": "MM",
        "joinstyle": "miter",
    }.items():
        SubElement(options, "Option", name=name, type="QString", value=value)
    SubElement(root, "layerGeometryType").text = "2"  # polygons
