"""Start QGIS with Processing and the plugin; the other scripts of this folder begin with it.

These scripts run in QGIS's own Python. Each prints one JSON object, which a test looks at.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from qgis.core import QgsApplication, QgsProcessingFeedback, QgsProject

PROFILE = Path(os.environ["QGIS_CUSTOM_CONFIG_PATH"], "profiles", "default")


class Window:
    """A main window with a map, and as much of QGIS's interface as a plugin asks for."""

    def __init__(self) -> None:
        self.iface = self

    def build(self) -> None:
        from qgis.gui import QgsMapCanvas
        from qgis.PyQt.QtWidgets import QMainWindow

        self.main, self.canvas = QMainWindow(), QgsMapCanvas()
        self.main.setCentralWidget(self.canvas)
        self.main.resize(1000, 640)
        self.actions: list[object] = []

    def show(self) -> None:
        self.main.show()
        self.main.activateWindow()
        QgsApplication.processEvents()

    def mainWindow(self) -> object:
        return self.main

    def mapCanvas(self) -> object:
        return self.canvas

    def addPluginToRasterMenu(self, menu: str, action: object) -> None:
        self.actions.append(action)

    def removePluginRasterMenu(self, menu: str, action: object) -> None:
        self.actions.remove(action)

    def addDockWidget(self, area: object, dock: object) -> None:
        self.main.addDockWidget(area, dock)
        QgsApplication.processEvents()

    def removeDockWidget(self, dock: object) -> None:
        self.main.removeDockWidget(dock)


def start(command: str, *, windows: bool = False, iface: object = None):
    """Return the application and the plugin; `command` is what the plugin's setting says."""
    app = QgsApplication([], windows, str(PROFILE))
    app.initQgis()
    sys.path += [
        str(Path(app.pkgDataPath(), "python", "plugins")),
        str(PROFILE / "python" / "plugins"),
    ]
    from processing.core.Processing import Processing
    from processing.core.ProcessingConfig import ProcessingConfig

    Processing.initialize()
    from adadino_change import classFactory

    plugin = classFactory(iface)
    if iface is not None:
        iface.build()
        plugin.initGui()
    else:
        plugin.initProcessing()
    ProcessingConfig.setSettingValue("ADADINO_COMMAND", command)
    return app, plugin


class Feedback(QgsProcessingFeedback):
    """Keeps what an algorithm says; cancels itself at the first progress if asked to."""

    def __init__(self, *, cancel: bool = False) -> None:
        super().__init__(False)
        self.percents: list[float] = []
        self.warnings: list[str] = []
        self.infos: list[str] = []
        # A signal of the same object, so that it is called in whatever thread runs.
        self.progressChanged.connect(self.percents.append)
        if cancel:
            self.progressChanged.connect(lambda percent: self.cancel())

    def pushWarning(self, text: str) -> None:
        self.warnings.append(text)

    def pushInfo(self, text: str) -> None:
        self.infos.append(text)


def tree(project: QgsProject) -> dict:
    """The project's groups, and of each layer what a user sees of it."""
    shown = {}
    for group in project.layerTreeRoot().findGroups():
        shown[group.name()] = [look(node.layer()) for node in group.findLayers()]
    loose = [n.layer().name() for n in project.layerTreeRoot().findLayers() if _is_loose(n)]
    return {"groups": shown, "loose": loose}


def look(layer) -> dict:
    return {
        "name": layer.name(),
        "valid": layer.isValid(),
        "crs": layer.crs().authid(),
        "file": Path(layer.source().split("|")[0]).name,
        "renderer": layer.renderer().type(),
    }


def _is_loose(node) -> bool:
    return node.parent().parent() is None


def say(**facts: object) -> None:
    print(json.dumps(facts))
