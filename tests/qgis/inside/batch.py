"""Run two rows in QGIS's own batch dialog, with a press on Cancel if asked to.

Words: command before after model out cancel|finish
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from start import say, start

command, before, after, weights, out, ending = sys.argv[1:]
app, plugin = start(command, windows=True)

from processing.gui.BatchAlgorithmDialog import BatchAlgorithmDialog  # noqa: E402
from qgis.core import QgsApplication  # noqa: E402
from qgis.PyQt.QtCore import QTimer  # noqa: E402

algorithm = QgsApplication.processingRegistry().createAlgorithmById("adadino:detectchange")
dialog = BatchAlgorithmDialog(algorithm)
rows = [
    {"BEFORE": before, "AFTER": after, "MODEL": weights, "MASK": str(Path(out, f"{row}.tif"))}
    for row in range(2)
]
panel = dialog.mainWidget()
panel.batchRowCount = lambda: len(rows)
panel.parametersForRow = lambda row, **_: (rows[row], True)
panel.checkLoadLayersOnCompletion.setChecked(False)
dialog.show()
pressed = []


def press() -> None:
    pressed.append(time.monotonic())
    dialog.cancelButton().click()


if ending == "cancel":
    QTimer.singleShot(1500, press)
dialog.runAlgorithm()
seconds = time.monotonic() - pressed[0] if pressed else None
say(seconds=seconds, files=sorted(path.name for path in Path(out).glob("*.tif")))
