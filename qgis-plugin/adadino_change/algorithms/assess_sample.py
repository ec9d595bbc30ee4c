# SPDX-License-Identifier: GPL-2.0-or-later
"""*Draw a sample to judge*: random pixels of a map, the first half of an assessment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qgis.core import (
    QgsProcessingOutputNumber,
    QgsProcessingParameterNumber,
    QgsProcessingParameterRasterLayer,
)

from ..command.arguments import Call
from ..command.errors import CommandError
from ..results import dress
from ..review.style import prepare
from .given import Given
from .kept import KeptLayer
from .parameters import optional_number


class DrawSample(KeptLayer):
    """Runs `adadino assess sample`."""

    NAME = "drawsample"
    TITLE = "Draw a sample to judge"
    TAGS = ("accuracy", "stratified random sample", "validation", "Olofsson")
    HELP = (
        "Draws random pixels of a change mask, from changed and unchanged land apart. Judge every "
        "one of them with Raster > adadino > Review changes (A change, R no change, U unsure), "
        "then run Assess accuracy.\n\n"
        "The layer does not show what the map says of a pixel, so that you judge by the images "
        "alone. The wanted error decides how many pixels are drawn, unless you give their number."
    )

    def initAlgorithm(self, configuration: dict[str, Any] | None = None) -> None:
        """Declare inputs, settings and outputs."""
        whole = QgsProcessingParameterNumber.Integer
        self.addParameter(QgsProcessingParameterRasterLayer("MASK", "Change mask"))
        self.addParameter(
            optional_number(
                "ERROR",
                "Half the 95 % interval of the overall accuracy that you want, such as 0.02",
                least=0.0,
                most=1.0,
            )
        )
        self.addParameter(
            optional_number(
                "SIZE", "Number of pixels (75 of each class at least)", least=4, type=whole
            )
        )
        self.add_advanced(
            optional_number("BUFFER", "Pixels around change to sample apart", least=0, type=whole)
        )
        self.add_advanced(optional_number("SEED", "Which random sample", least=0, type=whole))
        self.add_kept_layer("Pixels to judge")
        self.addOutput(QgsProcessingOutputNumber("PIXEL_COUNT", "Number of pixels to judge"))

    def work(self, given: Given) -> dict[str, Any]:
        """Draw, and load the layer to judge."""
        path = self.kept_layer(given)
        if Path(path).exists():
            raise CommandError(
                f"{path} exists, and its verdicts would be lost; choose another name."
            )
        mask, layer = given.raster("MASK")
        call = Call(("assess", "sample"), positional=[mask])
        call.add("--output", path)
        for name in ("ERROR", "SIZE", "BUFFER", "SEED"):
            call.add(f"--{name.lower()}", given.number(name))
        strata = self.run_call(call, given.feedback).facts.get("strata", [])
        for one in strata:
            given.feedback.pushInfo(f"{one['name']}: {one['sampled']} of {one['pixels']} pixels")
        dress(given.context, [path], f"Sample of {layer.name()}", finish=prepare)
        return {"POLYGONS": path, "PIXEL_COUNT": sum(int(one["sampled"]) for one in strata)}
