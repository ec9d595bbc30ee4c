# SPDX-License-Identifier: GPL-2.0-or-later
"""*Assess accuracy*: how right a map is, and the area of change with its interval."""

from __future__ import annotations

from typing import Any

from qgis.core import (
    QgsProcessing,
    QgsProcessingOutputNumber,
    QgsProcessingParameterFileDestination,
    QgsProcessingParameterRasterLayer,
    QgsProcessingParameterVectorLayer,
)

from ..command.arguments import Call
from .base import CommandAlgorithm
from .given import Given

FIGURES = {
    "OVERALL": ("overall", "Overall accuracy"),
    "USERS": ("users", "User's accuracy of change"),
    "PRODUCERS": ("producers", "Producer's accuracy of change"),
    "AREA": ("change_area_m2", "Area of change in square metres"),
}
"""Outputs, the names that the command gives them, and their titles."""


class AssessAccuracy(CommandAlgorithm):
    """Runs `adadino assess estimate`."""

    NAME = "assessaccuracy"
    TITLE = "Assess accuracy"
    TAGS = ("validation", "error matrix", "area estimate", "Olofsson")
    HELP = (
        "Estimates from a judged sample how right a change map is: overall, user's and producer's "
        "accuracy, and the area of change with its 95 % interval (Olofsson et al. 2014).\n\n"
        "The sample is the layer of Draw a sample to judge, every pixel of which has a verdict. "
        "Verdicts of Export for review are no random sample of the map and are refused."
    )

    def initAlgorithm(self, configuration: dict[str, Any] | None = None) -> None:
        """Declare inputs and outputs."""
        self.addParameter(
            QgsProcessingParameterVectorLayer(
                "SAMPLE", "Judged sample", [QgsProcessing.TypeVectorPolygon]
            )
        )
        self.addParameter(
            QgsProcessingParameterRasterLayer(
                "MASK", "Change mask, to show in the report", optional=True
            )
        )
        self.addParameter(
            QgsProcessingParameterFileDestination(
                "REPORT",
                "Report",
                fileFilter="HTML files (*.html);;PDF files (*.pdf)",
                optional=True,
            )
        )
        for name, (_, title) in FIGURES.items():
            self.addOutput(QgsProcessingOutputNumber(name, title))
            self.addOutput(QgsProcessingOutputNumber(f"{name}_MARGIN", f"{title}, plus or minus"))

    def work(self, given: Given) -> dict[str, Any]:
        """Estimate, and put the figures into the log and the outputs."""
        call = Call(("assess", "estimate"))
        call.positional = [given.judged_file("SAMPLE")]
        report = given.new_file("REPORT")
        call.add("--report", report)
        call.add("--overwrite", bool(report))  # QGIS has asked
        if report and given.has("MASK"):
            call.add("--map", given.raster("MASK")[0])
        facts = self.run_call(call, given.feedback).facts
        results: dict[str, Any] = {"REPORT": report} if report else {}
        for name, (key, title) in FIGURES.items():
            found = facts.get(key)
            if key in ("users", "producers"):
                found = (found or {}).get("change")
            if not found:
                given.feedback.pushInfo(f"{title}: not known from this sample")
                continue
            results[name], results[f"{name}_MARGIN"] = found["value"], found["margin"]
            percent, unit = (1, " m²") if name == "AREA" else (100, " %")
            value, margin = percent * found["value"], percent * found["margin"]
            given.feedback.pushInfo(f"{title}: {value:,.1f} ± {margin:,.1f}{unit} (95 % interval)")
        return results
