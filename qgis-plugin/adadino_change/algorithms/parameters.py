# SPDX-License-Identifier: GPL-2.0-or-later
"""Parameters that several algorithms declare."""

from __future__ import annotations

from qgis.core import QgsProcessingParameterFile, QgsProcessingParameterNumber


def optional_number(
    name: str,
    title: str,
    *,
    least: float,
    most: float = 1e12,
    type: QgsProcessingParameterNumber.Type = QgsProcessingParameterNumber.Double,
) -> QgsProcessingParameterNumber:
    """A number that may be left to the command, which has the defaults."""
    return QgsProcessingParameterNumber(
        name, title, type=type, optional=True, minValue=least, maxValue=most
    )


def model(title: str = "Model folder or .onnx file") -> QgsProcessingParameterFile:
    """A model, or nothing for the one that comes with adadino."""
    return QgsProcessingParameterFile(
        "MODEL",
        f"{title} (empty: the model that comes with adadino)",
        behavior=QgsProcessingParameterFile.Folder,
        optional=True,
    )
