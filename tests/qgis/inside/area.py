"""Detect change inside a layer that is no file: one polygon in memory, in another CRS.

Words: command before after model out.tif WEST,SOUTH,EAST,NORTH
"""

from __future__ import annotations

import sys

from start import Feedback, say, start

command, before, after, weights, mask, box = sys.argv[1:]
app, plugin = start(command)

import processing  # noqa: E402
from qgis.core import QgsFeature, QgsGeometry, QgsRectangle, QgsVectorLayer  # noqa: E402

layer = QgsVectorLayer("Polygon?crs=EPSG:4326", "my area", "memory")
given = {"BEFORE": before, "AFTER": after, "MODEL": weights, "AREA": layer, "MASK": mask}
try:
    processing.run("adadino:detectchangeinarea", given, feedback=Feedback())
    empty = ""
except Exception as error:
    empty = str(error)
area = QgsFeature()
area.setGeometry(QgsGeometry.fromRect(QgsRectangle(*map(float, box.split(",")))))
layer.dataProvider().addFeature(area)
feedback = Feedback()
results = processing.run("adadino:detectchangeinarea", given, feedback=feedback)
say(empty=empty, results=results, infos=feedback.infos, warnings=feedback.warnings)
