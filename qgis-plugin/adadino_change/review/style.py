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

LOOKS = {
    "": ("#ffd400", "to judge"),
    "right": ("#1a9641", "right"),
    "wrong": ("#d7191c", "wrong"),
    "unsure": ("#fd8d3c", "unsure"),
    "missed": ("#2b83ba", "missed by the map"),
    "unchanged": ("#ffffff", "nothing changed here"),
}
"""Outline and label of each verdict."""


def prepare(layer: QgsMapLayer) -> None:
    """Colour the areas by verdict, and have what is drawn count as a change that was missed."""
    if not isinstance(layer, QgsVectorLayer) or layer.fields().indexOf("verdict") < 0:
        return
    categories = []
    for verdict, (colour, label) in LOOKS.items():
        symbol = QgsFillSymbol.createSimple(
            {"style": "no", "outline_color": colour, "outline_width": "0.8"}
        )
        categories.append(QgsRendererCategory(verdict, symbol, label))
    # A verdict that is not there yet is empty or missing; both are one category.
    layer.setRenderer(QgsCategorizedSymbolRenderer("coalesce(\"verdict\", '')", categories))
    fields = layer.fields()
    choices = {"map": {label: verdict for verdict, (_, label) in LOOKS.items()}}
    layer.setEditorWidgetSetup(fields.indexOf("verdict"), QgsEditorWidgetSetup("ValueMap", choices))
    for name, expression in {
        "verdict": "'missed'",
        "judged_by": "@user_account_name",
    }.items():
        if fields.indexOf(name) >= 0:
            layer.setDefaultValueDefinition(fields.indexOf(name), QgsDefaultValue(expression))
    layer.triggerRepaint()
