# SPDX-License-Identifier: GPL-2.0-or-later
"""*Adapt a model*: a model that has learned from a review, or from labelled tiles."""

from __future__ import annotations

from typing import Any, ClassVar

from qgis.core import (
    QgsProcessing,
    QgsProcessingContext,
    QgsProcessingOutputString,
    QgsProcessingParameterBoolean,
    QgsProcessingParameterFile,
    QgsProcessingParameterFolderDestination,
    QgsProcessingParameterNumber,
    QgsProcessingParameterRasterLayer,
    QgsProcessingParameterVectorLayer,
)

from ..command.arguments import Call
from ..command.errors import CommandError
from .base import CommandAlgorithm
from .given import Given
from .parameters import model, optional_number


class AdaptModel(CommandAlgorithm):
    """Runs `adadino adapt`."""

    NAME = "adaptmodel"
    TITLE = "Adapt a model"
    TAGS = ("train", "learn", "fine-tune", "few labels")
    HELP = (
        "Fits a model to your place, sensor and kind of change. It learns from a layer that you "
        "judged after Export for review, together with the two images of that map; or from a "
        "folder of labelled tiles.\n\n"
        "The old and the new model are compared on tiles that were not learned from. If the new "
        "one is not better, the log says so and no model is written.\n\n"
        "Sixteen tiles take some minutes. A cancelled run goes on when you run it again. Then "
        "choose the new folder as the model of Detect change."
    )
    DIALOG: ClassVar[dict[str, str]] = {"--overwrite": "OVERWRITE", "--anyway": "ANYWAY"}

    def initAlgorithm(self, configuration: dict[str, Any] | None = None) -> None:
        """Declare inputs, settings and outputs."""
        self.addParameter(
            QgsProcessingParameterVectorLayer(
                "JUDGED",
                "Judged layer of Export for review",
                [QgsProcessing.TypeVectorPolygon],
                optional=True,
            )
        )
        for name, title in (("BEFORE", "Image before"), ("AFTER", "Image after")):
            self.addParameter(QgsProcessingParameterRasterLayer(name, title, optional=True))
        self.addParameter(
            QgsProcessingParameterFile(
                "DATA",
                "Or a folder of labelled tiles, with A, B and label",
                behavior=QgsProcessingParameterFile.Folder,
                optional=True,
            )
        )
        self.addParameter(model("Model to start from"))
        self.add_advanced(
            optional_number(
                "RESOLUTION",
                "Side of the tiles' pixels in metres, if they do not say it",
                least=0.0,
            )
        )
        whole = QgsProcessingParameterNumber.Integer
        self.add_advanced(
            optional_number("STEPS", "The most updates of one training", least=1, type=whole)
        )
        for name, title in (
            ("ANYWAY", "Write the new model even if it is not better"),
            ("OVERWRITE", "Replace a model that is in the folder"),
        ):
            self.add_advanced(QgsProcessingParameterBoolean(name, title, defaultValue=False))
        self.addParameter(
            QgsProcessingParameterFolderDestination("OUTPUT", "Folder of the new model")
        )
        self.addOutput(QgsProcessingOutputString("KEPT", "Which model to use: new or old"))

    def checkParameterValues(
        self, parameters: dict[str, Any], context: QgsProcessingContext
    ) -> tuple[bool, str]:
        """Refuse a temporary folder: QGIS deletes it on closing, with the model."""
        if parameters.get("OUTPUT") == QgsProcessing.TEMPORARY_OUTPUT:
            return False, "Choose a folder for the new model: QGIS deletes temporary ones."
        return super().checkParameterValues(parameters, context)

    def work(self, given: Given) -> dict[str, Any]:
        """Adapt, and say which model to use."""
        call, start, data = Call(("adapt",)), given.model(), given.text("DATA")
        call.positional = [start] if start else []
        if bool(data) == given.has("JUDGED"):
            raise CommandError(
                "Give either a judged layer with its two images, or a folder of labelled tiles."
            )
        if data:
            call.add("--data", data)
        else:
            _judged(call, given)
        call.add("--output", given.text("OUTPUT"))
        for name in ("RESOLUTION", "STEPS"):
            call.add(f"--{name.lower()}", given.number(name))
        call.add("--anyway", given.flag("ANYWAY"))
        call.add("--overwrite", given.flag("OVERWRITE"))
        facts = self.run_call(call, given.feedback).facts
        held = facts.get("held_out") or {}
        given.feedback.pushInfo(_sentence(held, facts.get("model")))
        return {"OUTPUT": facts.get("model") or "", "KEPT": facts.get("kept", "")}


def _judged(call: Call, given: Given) -> None:
    call.add("--judged", given.judged_file("JUDGED"))
    for name in ("BEFORE", "AFTER"):
        if not given.has(name):
            raise CommandError("A judged layer needs both images of its map; choose them.")
        call.add(f"--{name.lower()}", given.raster(name)[0])


def _sentence(held: dict[str, Any], path: str | None) -> str:
    """What the figures say, and what to do next."""
    try:
        figures = f"F1 {100 * held['old']['f1']:.1f} before, {100 * held['new']['f1']:.1f} after, "
        figures += "on tiles that were not learned from. "
    except (KeyError, TypeError):
        figures = ""
    if path:
        return f"{figures}The new model is {path}: choose it in Detect change."
    return f"{figures}The new model is not better; go on with the old one, or judge more areas."
