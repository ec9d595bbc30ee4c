# SPDX-License-Identifier: GPL-2.0-or-later
"""Results in the project: in a group of their own, with the styles that the command wrote."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Callable

from qgis.core import (
    QgsLayerTreeGroup,
    QgsMapLayer,
    QgsProcessingContext,
    QgsProcessingFeedback,
    QgsProcessingLayerPostProcessorInterface,
    QgsProject,
)

_kept: deque[QgsProcessingLayerPostProcessorInterface] = deque(maxlen=256)
"""QGIS keeps no reference to what is called after loading, so we do."""


Finish = Callable[[QgsMapLayer], None]


def dress(
    context: QgsProcessingContext,
    paths: list[str],
    group: str,
    finish: Finish | None = None,
) -> None:
    """Have the layers that QGIS will load get their styles and one group.

    Args:
        context: Where QGIS keeps which layers it will load.
        paths: The files, the one to be drawn on top first.
        group: Title of the group.
        finish: What else to do with each layer, once it is there.
    """
    for rank, path in enumerate(path for path in paths if path):
        if not context.willLoadLayerOnCompletion(path):
            continue
        details = context.layerToLoadOnCompletionDetails(path)
        grouped = hasattr(details, "groupName")  # QGIS 3.32 and newer makes the group itself
        if grouped:
            details.groupName = group
            details.layerSortKey = -rank
        dresser = _Dresser(path, "" if grouped else group, rank, finish)
        _kept.append(dresser)
        details.setPostProcessor(dresser)


class _Dresser(QgsProcessingLayerPostProcessorInterface):
    """Styles one layer and puts it into its group."""

    def __init__(self, path: str, group: str, rank: int, finish: Finish | None) -> None:
        super().__init__()
        self.style = Path(path).with_suffix(".qml")
        self.group, self.rank, self.finish = group, rank, finish

    def postProcessLayer(
        self, layer: QgsMapLayer, context: QgsProcessingContext, feedback: QgsProcessingFeedback
    ) -> None:
        """Do it; QGIS calls this in its main thread when the layer is loaded."""
        if self.style.is_file():
            layer.loadNamedStyle(str(self.style))
            layer.triggerRepaint()
        if self.finish is not None:
            self.finish(layer)
        if self.group:
            self._move(layer, context.project() or QgsProject.instance())

    def _move(self, layer: QgsMapLayer, project: QgsProject) -> None:
        root = project.layerTreeRoot()
        node = root.findLayer(layer.id())
        if node is None:
            return
        group = root.findGroup(self.group) or root.insertGroup(0, self.group)
        copy = node.clone()
        copy.setCustomProperty("adadino/rank", self.rank)
        group.insertChildNode(_place(group, self.rank), copy)
        node.parent().removeChildNode(node)


def _place(group: QgsLayerTreeGroup, rank: int) -> int:
    """Where a layer of this rank goes among those that are there."""
    ranks = [int(child.customProperty("adadino/rank", -1)) for child in group.children()]
    return next((place for place, other in enumerate(ranks) if other >= rank), len(ranks))
