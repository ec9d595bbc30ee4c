# SPDX-License-Identifier: GPL-2.0-or-later
"""*Export for review*: a map's polygons as a layer to judge, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qgis.core import (
    QgsProcessingContext,
    QgsProcessingFeedback,
    QgsProcessingOutputFolder,
    QgsProcessingOutputNumber,
    QgsProcessingParameterNumber,
    QgsProcessingParameterRasterLayer,
)

from ..command.arguments import Call
from ..results import dress
from ..review.style import prepare
from .kept import KeptLayer
from .parameters import optional_number


class ExportForReview(KeptLayer):
    """Runs `adadino judge start` and `adadino judge export`."""

    NAME = "exportforreview"
    TITLE = "Export for review"
    TAGS = ("judge", "verdict", "validate")
    HELP = (
        "Makes a layer of the changed areas to judge: right, wrong or unsure. A random sample "
        "comes first, because it says how right the map is; then those of which the model is "
        "least certain, if the probability is given.\n\n"
        "Open Raster > adadino > Review changes to judge them by key. Draw changes that were "
        "missed into the same layer.\n\n"
        "Beside the layer a folder with the ending .review keeps which map is judged. If it is "
        "there already, the review goes on: the verdicts in the layer are taken over, then it is "
        "written again."
    )

    def initAlgorithm(self, configuration: dict[str, Any] | None = None) -> None:
        """Declare inputs, settings and outputs."""
        self.addParameter(QgsProcessingParameterRasterLayer("MASK", "Change mask"))
        self.addParameter(
            QgsProcessingParameterRasterLayer("PROBABILITY", "Change probability", optional=True)
        )
        self.addParameter(
            optional_number("MIN_AREA", "Do not judge smaller areas, in square metres", least=0.0)
        )
        whole = QgsProcessingParameterNumber.Integer
        self.add_advanced(
            optional_number("SAMPLE", "Areas in the random sample", least=1, type=whole)
        )
        self.add_kept_layer("Areas to judge")
        self.addOutput(QgsProcessingOutputFolder("REVIEW", "Folder of the review"))
        self.addOutput(QgsProcessingOutputNumber("POLYGON_COUNT", "Number of areas to judge"))

    def work(
        self,
        parameters: dict[str, Any],
        context: QgsProcessingContext,
        feedback: QgsProcessingFeedback,
    ) -> dict[str, Any]:
        """Begin the review if it is not there, and write its layer."""
        polygons = self.kept_layer(parameters, context)
        folder = Path(polygons).with_suffix(".review")
        if (folder / "review.json").exists():
            feedback.pushInfo(f"{folder} holds a review already; it goes on.")
            if Path(polygons).exists():  # its verdicts first, for it is about to be replaced
                take = Call(("judge", "import"), positional=[str(folder), polygons])
                self.run_call(take, feedback)
        else:
            self.run_call(self._start(parameters, context, feedback, folder), feedback)
        call = Call(("judge", "export"), positional=[str(folder)])
        call.add("--vector", polygons)
        call.add("--overwrite", True)
        self.run_call(call, feedback)
        status = self.run_call(Call(("judge", "status"), positional=[str(folder)]), feedback)
        dress(context, [polygons], f"Review of {folder.stem}", finish=prepare)
        count = int(status.facts.get("polygons", 0))
        feedback.pushInfo(f"{count} areas to judge: open Raster > adadino > Review changes.")
        return {"POLYGONS": polygons, "REVIEW": str(folder), "POLYGON_COUNT": count}

    def _start(
        self,
        parameters: dict[str, Any],
        context: QgsProcessingContext,
        feedback: QgsProcessingFeedback,
        folder: Path,
    ) -> Call:
        mask, _ = self.raster(parameters, "MASK", context, feedback)
        call = Call(("judge", "start"), positional=[mask])
        call.add("--output", folder)
        if parameters.get("PROBABILITY"):
            call.add("--probability", self.raster(parameters, "PROBABILITY", context, feedback)[0])
        call.add("--min-area", self.number(parameters, "MIN_AREA", context))
        call.add("--sample", self.number(parameters, "SAMPLE", context))
        return call
