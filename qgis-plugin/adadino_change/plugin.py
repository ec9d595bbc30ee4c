# SPDX-License-Identifier: GPL-2.0-or-later
"""The plugin as QGIS starts and ends it."""

from __future__ import annotations

from typing import Any

from qgis.core import QgsApplication
from qgis.PyQt.QtCore import Qt
from qgis.PyQt.QtGui import QIcon
from qgis.PyQt.QtWidgets import QAction, QDockWidget

from .provider import ICON, Provider

MENU = "adadino"


class Plugin:
    """Registers the provider, and in a QGIS with windows the review panel."""

    def __init__(self, iface: Any) -> None:
        self.iface = iface
        self.provider: Provider | None = None
        self.action: QAction | None = None
        self.dock: QDockWidget | None = None

    def initProcessing(self) -> None:
        """Register the algorithms; all that `qgis_process` needs."""
        self.provider = Provider()
        QgsApplication.processingRegistry().addProvider(self.provider)

    def initGui(self) -> None:
        """Register the algorithms, and the review panel in the menu Raster."""
        self.initProcessing()
        self.action = QAction(QIcon(ICON), "Review changes", self.iface.mainWindow())
        self.action.triggered.connect(self.review)
        self.iface.addPluginToRasterMenu(MENU, self.action)

    def review(self) -> None:
        """Open the review panel."""
        if self.dock is None:
            from .review.dock import ReviewDock

            self.dock = ReviewDock(self.iface)
            self.iface.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, self.dock)
        self.dock.show()

    def unload(self) -> None:
        """Take all of it away."""
        if self.action is not None:
            self.iface.removePluginRasterMenu(MENU, self.action)
        if self.dock is not None:
            self.iface.removeDockWidget(self.dock)
            self.dock.deleteLater()
        if self.provider is not None:
            QgsApplication.processingRegistry().removeProvider(self.provider)
        self.provider = self.action = self.dock = None
