# SPDX-License-Identifier: GPL-2.0-or-later
"""What algorithms share whose layer people work in: it must not be a temporary one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qgis.core import (
    QgsProcessing,
    QgsProcessingContext,
    QgsProcessingOutputLayerDefinition,
    QgsProcessingParameterVectorDestination,
)

from ..command.errors import CommandError
from .base import CommandAlgorithm
from .given import Given


class KeptLayer(CommandAlgorithm):
    """An algorithm that writes a GeoPackage for verdicts."""

    def add_kept_layer(self, title: str) -> None:
        """Declare the layer."""
        self.addParameter(QgsProcessingParameterVectorDestination("POLYGONS", title))

    def checkParameterValues(
        self, parameters: dict[str, Any], context: QgsProcessingContext
    ) -> tuple[bool, str]:
        """Refuse a temporary layer: QGIS deletes it on closing, with all verdicts."""
        target = parameters.get("POLYGONS")
        if isinstance(target, QgsProcessingOutputLayerDefinition):
            target = target.sink.staticValue()
        if target == QgsProcessing.TEMPORARY_OUTPUT:
            return False, (
                "Choose a file for the layer to judge: QGIS deletes a temporary layer when it "
                "closes, and the verdicts would be lost."
            )
        return super().checkParameterValues(parameters, context)

    def kept_layer(self, given: Given) -> str:
        """Return the file to write.

        Raises:
            CommandError: It is no GeoPackage.
        """
        path = given.new_layer("POLYGONS")
        if Path(path).suffix.lower() != ".gpkg":
            raise CommandError(f"{path} is no GeoPackage; end the name of the layer in .gpkg.")
        return path
