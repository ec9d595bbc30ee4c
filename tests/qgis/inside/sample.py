"""Draw a sample, judge every pixel of it by key, and assess the map.

Words: command mask sample.gpkg
"""

from __future__ import annotations

import sys

from start import Feedback, Window, say, start, tree

command, mask, sample = sys.argv[1:]
window = Window()
app, plugin = start(command, windows=True, iface=window.iface)
window.show()

import processing  # noqa: E402
from qgis.core import QgsProject, QgsRasterLayer  # noqa: E402
from qgis.PyQt.QtCore import Qt  # noqa: E402
from qgis.PyQt.QtTest import QTest  # noqa: E402

drawn = processing.runAndLoadResults(
    "adadino:drawsample", {"MASK": mask, "SIZE": 12, "POLYGONS": sample}, Feedback()
)
[layer] = QgsProject.instance().mapLayers().values()
shown = tree(QgsProject.instance())
try:
    processing.run("adadino:assessaccuracy", {"SAMPLE": layer}, feedback=Feedback())
    early = ""
except Exception as error:
    early = str(error)
plugin.review()
dock = plugin.dock
buttons = [button.text() for button in dock.buttons[:3]]
truth = QgsRasterLayer(mask, "truth")
window.canvas.setFocus()
for _ in range(drawn["PIXEL_COUNT"]):
    centre = layer.getFeature(dock.session.current.fid).geometry().centroid().asPoint()
    changed = truth.dataProvider().sample(centre, 1)[0] == 1
    QTest.keyClick(window.canvas, Qt.Key.Key_A if changed else Qt.Key.Key_R)
app.processEvents()
feedback = Feedback()
figures = processing.run(
    "adadino:assessaccuracy",
    {"SAMPLE": layer, "MASK": mask, "REPORT": f"{sample}.html"},
    feedback=feedback,
)
say(drawn=drawn, early=early, buttons=buttons, figures=figures, infos=feedback.infos, **shown)
plugin.unload()
