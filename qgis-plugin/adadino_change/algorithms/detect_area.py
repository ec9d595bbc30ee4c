# SPDX-License-Identifier: GPL-2.0-or-later
"""*Detect change in an area of interest*: the same, inside polygons and outside clouds."""

from __future__ import annotations

from qgis.core import (
    QgsProcessing,
    QgsProcessingParameterFeatureSource,
    QgsProcessingParameterMultipleLayers,
    QgsProcessingParameterString,
)

from ..command.arguments import Call
from ..polygons import write_outlines
from .detect import DetectChange
from .given import Given


class DetectChangeInArea(DetectChange):
    """Runs `adadino predict --aoi`."""

    NAME = "detectchangeinarea"
    TITLE = "Detect change in an area of interest"
    TAGS = (*DetectChange.TAGS, "aoi", "clip", "clouds", "mask")
    HELP = (
        "Finds what changed between two images inside the polygons of a layer. Only that part of "
        "the images is read; areas and percentages are those of the polygons.\n\n"
        "The polygons may have any coordinate system and may come from any layer, also a temporary "
        "or a filtered one. If features are selected, you may use those alone.\n\n"
        "Rasters of clouds and shadows leave out what they cover. Their codes are scl (Sentinel-2 "
        "scene classification), qa60, qa_pixel (Landsat), or values such as 3,8,9."
    )

    def add_place(self) -> None:
        """Declare the polygons and the clouds."""
        self.addParameter(
            QgsProcessingParameterFeatureSource(
                "AREA", "Area of interest", [QgsProcessing.TypeVectorPolygon]
            )
        )
        self.add_advanced(
            QgsProcessingParameterMultipleLayers(
                "CLOUDS", "Rasters of clouds and shadows", QgsProcessing.TypeRaster, optional=True
            )
        )
        self.add_advanced(
            QgsProcessingParameterString(
                "CLOUD_CODES",
                "Codes of those rasters: scl, qa60, qa_pixel or values",
                optional=True,
            )
        )

    def place(self, call: Call, given: Given) -> None:
        """Hand over the polygons as a file, and the clouds with their codes."""
        call.add("--aoi", write_outlines(given.features("AREA"), given.context, given.feedback))
        codes = given.text("CLOUD_CODES")
        for path in given.rasters("CLOUDS"):
            call.add("--mask", f"{path}={codes}" if codes else path)
