# SPDX-License-Identifier: GPL-2.0-or-later
"""*Detect change*: two images in; polygons, mask, probability and report out."""

from __future__ import annotations

from typing import Any, ClassVar

from qgis.core import (
    QgsProcessingContext,
    QgsProcessingFeedback,
    QgsProcessingOutputNumber,
    QgsProcessingParameterBoolean,
    QgsProcessingParameterDateTime,
    QgsProcessingParameterFileDestination,
    QgsProcessingParameterRasterDestination,
    QgsProcessingParameterRasterLayer,
    QgsProcessingParameterString,
    QgsProcessingParameterVectorDestination,
)

from ..command.arguments import Call
from ..command.errors import CommandError
from ..results import dress
from .base import CommandAlgorithm
from .parameters import model, optional_number


class DetectChange(CommandAlgorithm):
    """Runs `adadino predict`."""

    NAME = "detectchange"
    TITLE = "Detect change"
    TAGS = ("predict", "compare", "two dates", "buildings")
    HELP = (
        "Finds what changed between two images of one place.\n\n"
        "Both images should show the same area at the same resolution. If their grids differ, the "
        "second is resampled onto the first.\n\n"
        "The result has polygons of the changed areas, a mask, a report to mail and, if you ask "
        "for it, the probability of change. The report is in Processing > Results Viewer. A "
        "setting that is left empty is chosen by adadino; the log says what was used."
    )

    DIALOG: ClassVar[dict[str, str]] = {
        "--any-resolution": "ANY_RESOLUTION",
        "--register": "REGISTER",
        "--resume": "RESUME",
        "--bands": "BANDS",
        "--scale": "SCALE",
        "--dates": "DATE_BEFORE",
        "--model": "MODEL",
        "--gsd": "GSD",
    }

    def initAlgorithm(self, configuration: dict[str, Any] | None = None) -> None:
        """Declare inputs, settings and outputs."""
        self.addParameter(QgsProcessingParameterRasterLayer("BEFORE", "Image before"))
        self.addParameter(QgsProcessingParameterRasterLayer("AFTER", "Image after"))
        self.add_place()
        self.addParameter(model())
        self.addParameter(
            optional_number(
                "MIN_AREA",
                "Smallest change to keep, in square metres (pixels without a CRS)",
                least=0.0,
            )
        )
        self.add_settings()
        self.add_results()

    def add_place(self) -> None:
        """Declare where to look; here it is the whole scene."""

    def add_settings(self) -> None:
        """Declare what most users never change."""
        date = QgsProcessingParameterDateTime.Date
        for parameter in (
            optional_number(
                "THRESHOLD", "Probability from which a pixel changed", least=0.0, most=1.0
            ),
            QgsProcessingParameterString(
                "BANDS", "Bands for red, green, blue, such as 3,2,1", optional=True
            ),
            QgsProcessingParameterString(
                "SCALE", "Raw values that are black and white, such as 0,3000", optional=True
            ),
            QgsProcessingParameterDateTime(
                "DATE_BEFORE", "Date of the image before", type=date, optional=True
            ),
            QgsProcessingParameterDateTime(
                "DATE_AFTER", "Date of the image after", type=date, optional=True
            ),
            optional_number("GSD", "Resample to pixels of so many metres", least=0.0),
            QgsProcessingParameterBoolean(
                "REGISTER", "Correct a shift between the images", defaultValue=False
            ),
            QgsProcessingParameterBoolean(
                "ANY_RESOLUTION",
                "Go on even if the model was not made for this resolution",
                defaultValue=False,
            ),
            QgsProcessingParameterBoolean(
                "RESUME", "Go on where a cancelled run of the same mask ended", defaultValue=False
            ),
        ):
            self.add_advanced(parameter)

    def add_results(self) -> None:
        """Declare the outputs."""
        self.addParameter(
            QgsProcessingParameterVectorDestination("POLYGONS", "Changed areas", optional=True)
        )
        self.addParameter(QgsProcessingParameterRasterDestination("MASK", "Change mask"))
        self.addParameter(
            QgsProcessingParameterRasterDestination(
                "PROBABILITY", "Change probability", optional=True, createByDefault=False
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
        self.addOutput(QgsProcessingOutputNumber("CHANGED_PERCENT", "Changed area in percent"))
        self.addOutput(QgsProcessingOutputNumber("POLYGON_COUNT", "Number of changed areas"))

    def work(
        self,
        parameters: dict[str, Any],
        context: QgsProcessingContext,
        feedback: QgsProcessingFeedback,
    ) -> dict[str, Any]:
        """Run `adadino predict`, and have QGIS load what it wrote."""
        before, layer_before = self.raster(parameters, "BEFORE", context, feedback)
        after, layer_after = self.raster(parameters, "AFTER", context, feedback)
        call = Call(("predict",), positional=[before, after])
        outputs = self.outputs(parameters, context)
        for name, option in _OUTPUTS.items():
            call.add(option, outputs.get(name))
        self.place(call, parameters, context, feedback)
        self.settings(call, parameters, context)
        resumed = self.parameterAsBoolean(parameters, "RESUME", context)
        call.add("--resume", resumed)
        call.add("--overwrite", not resumed)  # QGIS has asked before it named a file that exists
        facts = self.run_call(call, feedback).facts
        names = [outputs.get(name, "") for name in ("POLYGONS", "MASK", "PROBABILITY")]
        dress(context, names, f"Change from {layer_before.name()} to {layer_after.name()}")
        percent = 100 * float(facts.get("change_fraction", 0.0))
        count = int(facts.get("polygons", 0))
        # Where the model was not made for such images, the command's own words say so.
        plain = [f"{percent:.2f} % of the valid area changed, in {count} polygons"]
        for line in facts.get("summary", plain):
            feedback.pushInfo(self.in_dialog(line))
        return {**outputs, "CHANGED_PERCENT": percent, "POLYGON_COUNT": count}

    def place(
        self,
        call: Call,
        parameters: dict[str, Any],
        context: QgsProcessingContext,
        feedback: QgsProcessingFeedback,
    ) -> None:
        """Say where to look; here it is the whole scene."""

    def settings(
        self, call: Call, parameters: dict[str, Any], context: QgsProcessingContext
    ) -> None:
        """Pass on what the user set, and nothing else: the command has the defaults."""
        call.add("--model", self.model(parameters, context))
        for name in ("MIN_AREA", "THRESHOLD", "GSD"):
            value = self.number(parameters, name, context)
            call.add(f"--{name.lower().replace('_', '-')}", value)
        call.add("--bands", self.parameterAsString(parameters, "BANDS", context))
        call.add("--scale", self.parameterAsString(parameters, "SCALE", context))
        call.add("--dates", self._dates(parameters, context))
        call.add("--register", self.parameterAsBoolean(parameters, "REGISTER", context))
        call.add("--any-resolution", self.parameterAsBoolean(parameters, "ANY_RESOLUTION", context))

    def outputs(self, parameters: dict[str, Any], context: QgsProcessingContext) -> dict[str, str]:
        """Return the files to write, by the outputs' names; those that are skipped are left out."""
        paths = {
            name: self.parameterAsOutputLayer(parameters, name, context)
            for name in ("POLYGONS", "MASK", "PROBABILITY")
        }
        paths["REPORT"] = self.parameterAsFileOutput(parameters, "REPORT", context)
        return {name: path for name, path in paths.items() if path}

    def _dates(self, parameters: dict[str, Any], context: QgsProcessingContext) -> str:
        """Both dates as the command takes them, or nothing."""
        dates = [
            self.parameterAsDateTime(parameters, name, context).date()
            for name in ("DATE_BEFORE", "DATE_AFTER")
            if parameters.get(name) not in (None, "")
        ]
        texts = [date.toString("yyyy-MM-dd") for date in dates if date.isValid()]
        if len(texts) == 1:
            raise CommandError(
                f"Only one date is given, {texts[0]}; give the dates of both images, or none."
            )
        return ",".join(texts)


_OUTPUTS = {
    "MASK": "--output",
    "POLYGONS": "--vector",
    "PROBABILITY": "--probability",
    "REPORT": "--report",
}
"""The command's options for the outputs."""
