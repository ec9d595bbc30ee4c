# SPDX-License-Identifier: GPL-2.0-or-later
"""The polygons of any layer as a file: temporary, filtered and database layers have none."""

from __future__ import annotations

from qgis.core import (
    QgsFeature,
    QgsFeatureSink,
    QgsFields,
    QgsProcessingContext,
    QgsProcessingFeatureSource,
    QgsProcessingFeedback,
    QgsProcessingUtils,
    QgsVectorFileWriter,
)

from .command.errors import CommandError


def write_outlines(
    source: QgsProcessingFeatureSource | None,
    context: QgsProcessingContext,
    feedback: QgsProcessingFeedback,
) -> str:
    """Write the outlines of a layer, or of its selected features, into a temporary file.

    Raises:
        CommandError: There is nothing to write, or the layer does not say where it lies.
    """
    if source is None:
        raise CommandError("The area of interest is no layer that QGIS opens; choose another.")
    name = source.sourceName()
    if not source.sourceCrs().isValid():
        raise CommandError(
            f"The layer {name!r} has no coordinate system; set it in its properties, Source."
        )
    path = QgsProcessingUtils.generateTempFilename("area.gpkg")
    options = QgsVectorFileWriter.SaveVectorOptions()
    options.driverName, options.layerName = "GPKG", "area"
    writer = QgsVectorFileWriter.create(
        path,
        QgsFields(),
        source.wkbType(),
        source.sourceCrs(),
        context.transformContext(),
        options,
    )
    count = 0
    for feature in source.getFeatures():
        if feedback.isCanceled():
            break
        if feature.hasGeometry():
            outline = QgsFeature()
            outline.setGeometry(feature.geometry())
            writer.addFeature(outline, QgsFeatureSink.FastInsert)
            count += 1
    problem = writer.errorMessage()
    del writer  # the file is whole when its writer is gone
    if problem:
        raise CommandError(f"The polygons of {name!r} could not be written: {problem}.")
    if not count:
        raise CommandError(
            f"The layer {name!r} has no polygons to look in; draw some, or leave out the filter or "
            "'selected features only'."
        )
    return path
