# SPDX-License-Identifier: GPL-2.0-or-later
"""*Adapt a model*: a model that has learned from a review, or from labelled tiles."""

from __future__ import annotations

from typing import Any, ClassVar

from qgis.core import (
    QgsProcessing,
    QgsProcessingContext,
    QgsProcessingFeedback,
    QgsProcessingOutputString,
    QgsProcessingParameterBoolean,
    QgsProcessingParameterFile,
    QgsProcessingParameterFolderDestination,
    QgsProcessingParameterRasterLayer,
    QgsProcessingParameterVectorLayer,
)

from ..command.arguments import Call
from ..command.errors import CommandError
from .base import CommandAlgorithm
from .parameters import model


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

    def work(
        self,
        parameters: dict[str, Any],
        context: QgsProcessingContext,
        feedback: QgsProcessingFeedback,
    ) -> dict[str, Any]:
        """Adapt, and say which model to use."""
        output = self.parameterAsString(parameters, "OUTPUT", context)
        call = Call(("adapt",))
        start = self.model(parameters, context)
        call.positional = [start] if start else []
        data = self.parameterAsString(parameters, "DATA", context)
        if bool(data) == bool(parameters.get("JUDGED")):
            raise CommandError(
                "Give either a judged layer with its two images, or a folder of labelled tiles."
            )
        if data:
            call.add("--data", data)
        else:
            self._judged(call, parameters, context, feedback)
        call.add("--output", output)
        call.add("--anyway", self.parameterAsBoolean(parameters, "ANYWAY", context))
        call.add("--overwrite", self.parameterAsBoolean(parameters, "OVERWRITE", context))
        facts = self.run_call(call, feedback).facts
        held = facts.get("held_out") or {}
        feedback.pushInfo(_sentence(held, facts.get("model")))
        return {"OUTPUT": facts.get("model") or "", "KEPT": facts.get("kept", "")}

    def _judged(
        self,
        call: Call,
        parameters: dict[str, Any],
        context: QgsProcessingContext,
        feedback: QgsProcessingFeedback,
    ) -> None:
        call.add("--judged", self.judged_file(parameters, "JUDGED", context))
        for name in ("BEFORE", "AFTER"):
            if not parameters.get(name):
                raise CommandError("A judged layer needs both images of its map; choose them.")
            call.add(f"--{name.lower()}", self.raster(parameters, name, context, feedback)[0])


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
