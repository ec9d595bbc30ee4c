# SPDX-License-Identifier: GPL-2.0-or-later
"""*Export for review*: a map's polygons as a layer to judge, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qgis.core import (
    QgsProcessingOutputFolder,
    QgsProcessingOutputNumber,
    QgsProcessingParameterNumber,
    QgsProcessingParameterRasterLayer,
)

from ..command.arguments import Call
from ..results import dress
from ..review.style import prepare
from .given import Given
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

    def work(self, given: Given) -> dict[str, Any]:
        """Begin the review if it is not there, and write its layer."""
        polygons = self.kept_layer(given)
        folder = Path(polygons).with_suffix(".review")
        if (folder / "review.json").exists():
            given.feedback.pushInfo(f"{folder} holds a review already; it goes on.")
            if Path(polygons).exists():  # its verdicts first, for it is about to be replaced
                take = Call(("judge", "import"), positional=[str(folder), polygons])
                self.run_call(take, given.feedback)
        else:
            self.run_call(_start(given, folder), given.feedback)
        call = Call(("judge", "export"), positional=[str(folder)])
        call.add("--vector", polygons)
        call.add("--overwrite", True)
        self.run_call(call, given.feedback)
        status = Call(("judge", "status"), positional=[str(folder)])
        count = int(self.run_call(status, given.feedback).facts.get("polygons", 0))
        dress(given.context, [polygons], f"Review of {folder.stem}", finish=prepare)
        given.feedback.pushInfo(f"{count} areas to judge: open Raster > adadino > Review changes.")
        return {"POLYGONS": polygons, "REVIEW": str(folder), "POLYGON_COUNT": count}


def _start(given: Given, folder: Path) -> Call:
    """The command that begins a review."""
    call = Call(("judge", "start"), positional=[given.raster("MASK")[0]])
    call.add("--output", folder)
    if given.has("PROBABILITY"):
        call.add("--probability", given.raster("PROBABILITY")[0])
    call.add("--min-area", given.number("MIN_AREA"))
    call.add("--sample", given.number("SAMPLE"))
    return call
