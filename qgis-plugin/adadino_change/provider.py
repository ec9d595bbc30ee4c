# SPDX-License-Identifier: GPL-2.0-or-later
"""The Processing provider: the list of algorithms, and what their outputs may be."""

from __future__ import annotations

from pathlib import Path

from qgis.core import QgsProcessingProvider
from qgis.PyQt.QtGui import QIcon

from . import settings
from .algorithms import ALGORITHMS

ICON = str(Path(__file__).with_name("icon.svg"))


class Provider(QgsProcessingProvider):
    """adadino's algorithms, in the toolbox, in models and in `qgis_process`."""

    def id(self) -> str:
        """Return what comes before the colon in `adadino:detectchange`."""
        return "adadino"

    def name(self) -> str:
        """Return the name in the toolbox."""
        return "adadino"

    def longName(self) -> str:
        """Return the name where there is room for more."""
        return "adadino change detection"

    def icon(self) -> QIcon:
        """Return the provider's icon."""
        return QIcon(ICON)

    def svgIconPath(self) -> str:
        """Return the icon's file."""
        return ICON

    def load(self) -> bool:
        """Add the setting and the algorithms."""
        settings.register(self.icon())
        self.refreshAlgorithms()
        return True

    def unload(self) -> None:
        """Take the setting away."""
        settings.unregister()

    def loadAlgorithms(self) -> None:
        """Add the algorithms; an own instance of each, which QGIS then owns."""
        for algorithm in ALGORITHMS:
            self.addAlgorithm(algorithm())

    def supportsNonFileBasedOutput(self) -> bool:
        """Say that outputs are files: the command writes them, not QGIS."""
        return False

    def supportedOutputRasterLayerExtensions(self) -> list[str]:
        """Return what the command writes rasters as."""
        return ["tif"]

    def supportedOutputVectorLayerExtensions(self) -> list[str]:
        """Return what the command writes polygons as."""
        return ["gpkg", "geojson", "fgb", "shp"]
