"""Export for review, then judge by key in the panel.

Words: command mask probability areas.gpkg picture.png
"""

from __future__ import annotations

import sys

from start import Feedback, Window, say, start, tree

command, mask, probability, areas, picture = sys.argv[1:]
window = Window()
app, plugin = start(command, windows=True, iface=window.iface)
window.show()

import processing  # noqa: E402
from qgis.core import QgsProject  # noqa: E402
from qgis.PyQt.QtCore import Qt  # noqa: E402
from qgis.PyQt.QtTest import QTest  # noqa: E402

feedback = Feedback()
results = processing.runAndLoadResults(
    "adadino:exportforreview",
    {"MASK": mask, "PROBABILITY": probability, "POLYGONS": areas},
    feedback,
)
[layer] = QgsProject.instance().mapLayers().values()
place = layer.fields().indexOf("note")
first = min(layer.getFeatures(), key=lambda f: f["rank"])
hostile = "<img src='http://127.0.0.1:9/x'><b>" + 1000 * "x"
layer.dataProvider().changeAttributeValues({first.id(): {place: hostile}})
plugin.review()
dock = plugin.dock
said = {"panel": dock.status.text(), "first": dock.session.current.fid}
said["shown"] = [dock.facts.text(), int(dock.facts.textFormat()), int(dock.status.textFormat())]
layer.dataProvider().changeAttributeValues({first.id(): {place: None}})
views = []


def press(key) -> None:
    QTest.keyClick(window.canvas, key)
    app.processEvents()
    views.append(window.canvas.extent().toString(1))


window.canvas.setFocus()
press(Qt.Key.Key_A)
dock.note.setText("a shadow")
press(Qt.Key.Key_R)
said["after"] = dock.status.text()
press(Qt.Key.Key_Z)
press(Qt.Key.Key_U)
press(Qt.Key.Key_K)
said["selected"] = layer.selectedFeatureCount()
QTest.keyClicks(dock.note, "aru")
said["typed"] = dock.note.text()
app.processEvents()
dock.grab().save(picture)
rows = [
    [f["rank"], f["verdict"] or "", f["note"] or "", f["judged_by"] or "", f["judged_at"] or ""]
    for f in sorted(layer.getFeatures(), key=lambda f: f["rank"])
]
say(
    **said,
    results=results,
    rows=[[str(value) for value in row] for row in rows],
    views=len(set(views)),
    end=dock.status.text(),
    **tree(QgsProject.instance()),
)
plugin.unload()
