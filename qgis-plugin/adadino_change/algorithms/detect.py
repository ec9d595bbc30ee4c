# SPDX-License-Identifier: GPL-2.0-or-later
"""*Detect change*: two images in; polygons, mask, probability and report out."""

from __future__ import annotations

from typing import Any, ClassVar

from qgis.core import (
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
from .given import Given
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
                "REGULARISE", "Draw right-angled outlines, as buildings have", defaultValue=False
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

    def work(self, given: Given) -> dict[str, Any]:
        """Run `adadino predict`, and have QGIS load what it wrote."""
        before, layer_before = given.raster("BEFORE")
        after, layer_after = given.raster("AFTER")
        call = Call(("predict",), positional=[before, after])
        outputs = _outputs(given)
        for name, option in _OUTPUTS.items():
            call.add(option, outputs.get(name))
        self.place(call, given)
        _settings(call, given)
        resumed = given.flag("RESUME")
        call.add("--resume", resumed)
        call.add("--overwrite", not resumed)  # QGIS has asked before it named a file that exists
        facts = self.run_call(call, given.feedback).facts
        names = [outputs.get(name, "") for name in ("POLYGONS", "MASK", "PROBABILITY")]
        dress(given.context, names, f"Change from {layer_before.name()} to {layer_after.name()}")
        percent = 100 * float(facts.get("change_fraction", 0.0))
        count = int(facts.get("polygons", 0))
        # Where the model was not made for such images, the command's own words say so.
        plain = [f"{percent:.2f} % of the valid area changed, in {count} polygons"]
        for line in facts.get("summary", plain):
            given.feedback.pushInfo(self.in_dialog(line))
        return {**outputs, "CHANGED_PERCENT": percent, "POLYGON_COUNT": count}

    def place(self, call: Call, given: Given) -> None:
        """Say where to look; here it is the whole scene."""


def _settings(call: Call, given: Given) -> None:
    """Pass on what the user set, and nothing else: the command has the defaults."""
    call.add("--model", given.model())
    for name in ("MIN_AREA", "THRESHOLD", "GSD"):
        call.add(f"--{name.lower().replace('_', '-')}", given.number(name))
    call.add("--bands", given.text("BANDS"))
    call.add("--scale", given.text("SCALE"))
    call.add("--dates", _dates(given))
    call.add("--register", given.flag("REGISTER"))
    call.add("--regularise", given.flag("REGULARISE"))
    call.add("--any-resolution", given.flag("ANY_RESOLUTION"))


def _outputs(given: Given) -> dict[str, str]:
    """The files to write, by the outputs' names; those that are skipped are left out."""
    paths = {name: given.new_layer(name) for name in ("POLYGONS", "MASK", "PROBABILITY")}
    paths["REPORT"] = given.new_file("REPORT")
    return {name: path for name, path in paths.items() if path}


def _dates(given: Given) -> str:
    """Both dates as the command takes them, or nothing."""
    texts = [text for text in map(given.date, ("DATE_BEFORE", "DATE_AFTER")) if text]
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
