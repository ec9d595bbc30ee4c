# SPDX-License-Identifier: GPL-2.0-or-later
"""The plugin as QGIS starts and ends it."""

from __future__ import annotations

from typing import Any

from qgis.core import QgsApplication

from .provider import Provider


class Plugin:
    """Registers the provider."""

    def __init__(self, iface: Any) -> None:
        self.iface = iface
        self.provider: Provider | None = None

    def initProcessing(self) -> None:
        """Register the algorithms; all that `qgis_process` needs."""
        self.provider = Provider()
        QgsApplication.processingRegistry().addProvider(self.provider)

    def initGui(self) -> None:
        """Register the algorithms in a QGIS with windows."""
        self.initProcessing()

    def unload(self) -> None:
        """Take the algorithms away."""
        if self.provider is not None:
            QgsApplication.processingRegistry().removeProvider(self.provider)
            self.provider = None
