# SPDX-License-Identifier: GPL-2.0-or-later
"""adadino in QGIS: a Processing provider that runs the installed `adadino` command."""

from __future__ import annotations

from typing import Any


def classFactory(iface: Any) -> Any:
    """Return the plugin; QGIS calls this once.

    Where a part of QGIS is missing, a stand-in that says so is returned.
    """
    try:
        from .plugin import Plugin
    except ImportError as error:
        return _Incomplete(iface, error)
    return Plugin(iface)


class _Incomplete:
    """Says in one sentence why the plugin cannot work."""

    def __init__(self, iface: Any, error: ImportError) -> None:
        self.iface = iface
        way_out = "Enable Processing in Plugins > Manage and Install Plugins, or update QGIS."
        if (error.name or "").startswith(__name__):
            way_out = "A part of the plugin itself is missing: install its zip again."
        self.reason = (
            "adadino cannot start. It needs QGIS 3.22 or newer with the Processing plugin, and "
            f"found: {error}. {way_out}"
        )

    def initProcessing(self) -> None:
        """Say it where there is no window."""
        from qgis.core import Qgis, QgsMessageLog

        QgsMessageLog.logMessage(self.reason, "adadino", Qgis.Critical)

    def initGui(self) -> None:
        """Say it in the window."""
        self.initProcessing()
        self.iface.messageBar().pushCritical("adadino", self.reason)

    def unload(self) -> None:
        """Leave nothing behind, as there is nothing."""
