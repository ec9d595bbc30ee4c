# SPDX-License-Identifier: GPL-2.0-or-later
"""What the user gave to one run of an algorithm, as the command takes it."""

from __future__ import annotations

from typing import Any

from qgis.core import (
    QgsMapLayer,
    QgsProcessingAlgorithm,
    QgsProcessingContext,
    QgsProcessingFeatureSource,
    QgsProcessingFeedback,
    QgsRasterLayer,
)

from ..command.errors import CommandError
from ..command.sources import check_model, raster_source, vector_file


class Given:
    """The parameters of a run, its context and its log."""

    def __init__(
        self,
        algorithm: QgsProcessingAlgorithm,
        parameters: dict[str, Any],
        context: QgsProcessingContext,
        feedback: QgsProcessingFeedback,
    ) -> None:
        self.algorithm, self.parameters = algorithm, parameters
        self.context, self.feedback = context, feedback

    def has(self, name: str) -> bool:
        """Whether the user gave something."""
        return self.parameters.get(name) not in (None, "")

    def text(self, name: str) -> str:
        """Return a text, a file or a folder; empty if none was given."""
        return self.algorithm.parameterAsString(self.parameters, name, self.context).strip()

    def flag(self, name: str) -> bool:
        """Return whether a box is ticked."""
        return self.algorithm.parameterAsBoolean(self.parameters, name, self.context)

    def number(self, name: str) -> float | None:
        """Return a number, or None where the user left it to the command."""
        if not self.has(name):
            return None
        return self.algorithm.parameterAsDouble(self.parameters, name, self.context)

    def date(self, name: str) -> str:
        """Return a day as 2020-01-31; empty if none was given."""
        if not self.has(name):
            return ""
        date = self.algorithm.parameterAsDateTime(self.parameters, name, self.context).date()
        return date.toString("yyyy-MM-dd") if date.isValid() else ""

    def model(self) -> str:
        """Return the model that the user chose; empty for the command's own.

        Raises:
            CommandError: It is gone.
        """
        model = self.text("MODEL")
        if model:
            check_model(model)
        return model

    def raster(self, name: str) -> tuple[str, QgsRasterLayer]:
        """Return what the command opens for a raster, and its layer.

        Raises:
            CommandError: The command cannot open it.
        """
        layer = self.algorithm.parameterAsRasterLayer(self.parameters, name, self.context)
        if layer is None:
            raise CommandError(
                f"{self.parameters.get(name)!r} is no raster that QGIS opens; choose another image."
            )
        return self.raster_file(layer), layer

    def rasters(self, name: str) -> list[str]:
        """Return what the command opens for each of several rasters.

        Raises:
            CommandError: The command cannot open one of them.
        """
        layers = self.algorithm.parameterAsLayerList(self.parameters, name, self.context)
        return [self.raster_file(layer) for layer in layers]

    def raster_file(self, layer: QgsMapLayer) -> str:
        """Return what the command opens for a raster layer, and say what is strange about it.

        Raises:
            CommandError: The command cannot open it.
        """
        source, remark = raster_source(layer.source(), layer.providerType(), layer.name())
        if remark:
            self.feedback.pushInfo(remark)
        own = layer.dataProvider().crs()
        if layer.crs() != own:
            self.feedback.pushWarning(
                f"QGIS places {layer.name()} by {layer.crs().authid() or 'a CRS of its own'}, but "
                f"the file says {own.authid() or 'nothing'}, and the command goes by the file. "
                "Raster > Projections > Assign Projection writes it into the file."
            )
        return source

    def features(self, name: str) -> QgsProcessingFeatureSource | None:
        """Return the features of a layer, or of what is selected in it."""
        return self.algorithm.parameterAsSource(self.parameters, name, self.context)

    def judged_file(self, name: str) -> str:
        """Return the file of a layer with verdicts.

        Raises:
            CommandError: The layer is no file, or verdicts in it are not saved.
        """
        layer = self.algorithm.parameterAsVectorLayer(self.parameters, name, self.context)
        if layer is None:
            raise CommandError(
                f"{self.parameters.get(name)!r} is no layer that QGIS opens; choose another."
            )
        if layer.isEditable() and layer.isModified():
            raise CommandError(
                f"The layer {layer.name()!r} has edits that are not saved; save them (Layer > Save "
                "Layer Edits) and run this again."
            )
        return vector_file(layer.source(), layer.providerType(), layer.name())

    def new_layer(self, name: str) -> str:
        """Return the file of a layer to write; empty if the user skipped it."""
        return self.algorithm.parameterAsOutputLayer(self.parameters, name, self.context)

    def new_file(self, name: str) -> str:
        """Return a file to write; empty if the user skipped it."""
        return self.algorithm.parameterAsFileOutput(self.parameters, name, self.context)
