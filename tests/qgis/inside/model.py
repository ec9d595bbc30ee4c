"""Keep parameters in a model and in history: `model.py command before after weights out`."""

from __future__ import annotations

import sys
from pathlib import Path

from start import Feedback, say, start

command, before, after, weights, out = sys.argv[1:]
app, plugin = start(command)

from qgis.core import (  # noqa: E402
    QgsApplication,
    QgsProcessingContext,
    QgsProcessingModelAlgorithm,
    QgsProcessingModelChildAlgorithm,
    QgsProcessingModelChildParameterSource,
    QgsProcessingModelOutput,
    QgsProcessingModelParameter,
    QgsProcessingParameterRasterLayer,
)

ID = "adadino:detectchange"
value = QgsProcessingModelChildParameterSource.fromStaticValue
given = QgsProcessingModelChildParameterSource.fromModelParameter

model = QgsProcessingModelAlgorithm("two dates", "tests")
for name in ("FIRST", "SECOND"):
    model.addModelParameter(
        QgsProcessingParameterRasterLayer(name, name), QgsProcessingModelParameter(name)
    )
child = QgsProcessingModelChildAlgorithm(ID)
child.setChildId("detect")
for name, source in {
    "BEFORE": given("FIRST"),
    "AFTER": given("SECOND"),
    "MODEL": value(weights),
    "MIN_AREA": value(12.5),
}.items():
    child.addParameterSources(name, [source])
output = QgsProcessingModelOutput("changed", "Changed")
output.setChildId("detect")
output.setChildOutputName("POLYGONS")
child.setModelOutputs({"changed": output})
model.addChildAlgorithm(child)
file = str(Path(out, "two_dates.model3"))
saved = model.toFile(file)

again = QgsProcessingModelAlgorithm()
opened = again.fromFile(file)
again.initAlgorithm()
feedback = Feedback()
results, done = again.run(
    {"FIRST": before, "SECOND": after, "detect:changed": str(Path(out, "changed.gpkg"))},
    QgsProcessingContext(),
    feedback,
)
kept = again.childAlgorithm("detect").parameterSources()["MIN_AREA"][0].staticValue()

algorithm = QgsApplication.processingRegistry().algorithmById(ID)
parameters = {"BEFORE": before, "AFTER": after, "MIN_AREA": 12.5, "MASK": "TEMPORARY_OUTPUT"}
history = algorithm.asPythonCommand(parameters, QgsProcessingContext())
say(
    saved=saved,
    opened=opened,
    done=done,
    kept=kept,
    polygons=results.get("detect:changed"),
    history=history,
)
