"""Detect change and load the results as the dialog does.

Words: command before after model out
"""

from __future__ import annotations

import sys
from pathlib import Path

from start import Feedback, say, start, tree

command, before, after, model, out = sys.argv[1:]
app, plugin = start(command)

import processing  # noqa: E402
from qgis.core import QgsProject  # noqa: E402

feedback = Feedback()
results = processing.runAndLoadResults(
    "adadino:detectchange",
    {
        "BEFORE": before,
        "AFTER": after,
        "MODEL": model,
        "MASK": str(Path(out, "mask.tif")),
        "POLYGONS": str(Path(out, "areas.gpkg")),
        "PROBABILITY": str(Path(out, "likely.tif")),
    },
    feedback,
)
say(
    results=results,
    percents=feedback.percents,
    infos=feedback.infos,
    warnings=feedback.warnings,
    **tree(QgsProject.instance()),
)
