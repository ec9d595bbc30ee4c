# SPDX-License-Identifier: GPL-2.0-or-later
"""How a layer of areas to judge looks, and what QGIS fills in for areas that are drawn into it."""

from __future__ import annotations

from qgis.core import (
    QgsCategorizedSymbolRenderer,
    QgsDefaultValue,
    QgsEditorWidgetSetup,
    QgsFillSymbol,
    QgsMapLayer,
    QgsRendererCategory,
    QgsVectorLayer,
)

from .layer import is_sample

PIXELS = {
    "": ("#ffd400", "to judge"),
    "change": ("#d7191c", "change"),
    "no change": ("#1a9641", "no change"),
    "unsure": ("#fd8d3c", "unsure"),
}
"""Outline and label of each verdict on a pixel of a sample."""
AREAS = {
    "": ("#ffd400", "to judge"),
    "right": ("#1a9641", "right"),
    "wrong": ("#d7191c", "wrong"),
    "unsure": ("#fd8d3c", "unsure"),
    "missed": ("#2b83ba", "missed by the map"),
    "unchanged": ("#ffffff", "nothing changed here"),
}
"""Outline and label of each verdict on an area of a map."""

DEFAULTS = {"verdict": "'missed'", "judged_by": "@user_account_name"}
"""What an area that is drawn gets."""


def prepare(layer: QgsMapLayer) -> None:
    """Colour the areas by verdict, and have what is drawn count as a change that was missed."""
    if not isinstance(layer, QgsVectorLayer) or layer.fields().indexOf("verdict") < 0:
        return
    looks = PIXELS if is_sample(layer) else AREAS
    categories = []
    for verdict, (colour, label) in looks.items():
        symbol = QgsFillSymbol.createSimple(
            {"style": "no", "outline_color": colour, "outline_width": "0.8"}
        )
        categories.append(QgsRendererCategory(verdict, symbol, label))
    # A verdict that is not there yet is empty or missing; both are one category.
    layer.setRenderer(QgsCategorizedSymbolRenderer("coalesce(\"verdict\", '')", categories))
    fields = layer.fields()
    choices = {"map": {label: verdict for verdict, (_, label) in looks.items()}}
    layer.setEditorWidgetSetup(fields.indexOf("verdict"), QgsEditorWidgetSetup("ValueMap", choices))
    defaults = {} if is_sample(layer) else DEFAULTS
    for name, expression in defaults.items():
        if fields.indexOf(name) >= 0:
            layer.setDefaultValueDefinition(fields.indexOf(name), QgsDefaultValue(expression))
    layer.triggerRepaint()
