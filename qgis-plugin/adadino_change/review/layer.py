# SPDX-License-Identifier: GPL-2.0-or-later
"""Verdicts in a layer: read once, written at once, so that a closed QGIS loses nothing."""

from __future__ import annotations

import getpass
from datetime import datetime, timezone

from qgis.core import NULL, QgsFeatureRequest, QgsVectorLayer

from ..command.errors import CommandError
from .session import OF_AREAS, OF_PIXELS, Area, Change, Session

COLUMNS = ("id", "verdict", "judged_by", "judged_at")
DRAWN = ("missed", "unchanged")


def is_sample(layer: QgsVectorLayer) -> bool:
    """Whether the layer is a sample of pixels; areas of a map have a rank."""
    return layer.fields().indexOf("rank") < 0


def read_session(layer: QgsVectorLayer) -> Session:
    """Return the areas or pixels to judge; what a reviewer drew is none of them.

    Raises:
        CommandError: The layer was not made to be judged.
    """
    missing = [name for name in COLUMNS if layer.fields().indexOf(name) < 0]
    if missing:
        raise CommandError(
            f"The layer {layer.name()!r} has no column {missing[0]}, so it was not made to be "
            "judged; run Export for review or Draw a sample to judge, and choose its layer."
        )
    sample = is_sample(layer)
    request = QgsFeatureRequest().setFlags(QgsFeatureRequest.NoGeometry)
    areas = []
    for feature in layer.getFeatures(request):
        verdict, rank = feature["verdict"], feature["id" if sample else "rank"]
        verdict = "" if verdict in (None, NULL) else str(verdict)
        if verdict not in DRAWN and rank not in (None, NULL):
            areas.append(Area(feature.id(), float(rank), verdict))
    return Session(areas, OF_PIXELS if sample else OF_AREAS)


def write_verdict(layer: QgsVectorLayer, change: Change, note: str | None = None) -> None:
    """Write a verdict down, with who and when.

    In a layer that is being edited it goes to the edits; otherwise it is on disk when this returns.

    Raises:
        CommandError: The layer does not take it.
    """
    said = {"verdict": change.verdict or NULL, "judged_by": NULL, "judged_at": NULL}
    if change.verdict:
        at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        said.update(judged_by=_user(), judged_at=at)
    if note is not None:
        said["note"] = note
    places = {layer.fields().indexOf(name): value for name, value in said.items()}
    values = {place: value for place, value in places.items() if place >= 0}
    if layer.isEditable():
        done = all(layer.changeAttributeValue(change.fid, *item) for item in values.items())
    else:
        done = layer.dataProvider().changeAttributeValues({change.fid: values})
        layer.reload()
    if not done:
        raise CommandError(
            f"The verdict could not be written into {layer.name()!r}: another program may have the "
            "file open, or it is read-only."
        )
    layer.triggerRepaint()


def _user() -> str:
    """Who judges, as the system calls them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a process without a user of its own
        return "unknown"
