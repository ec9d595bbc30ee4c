# SPDX-License-Identifier: GPL-2.0-or-later
"""One file for each algorithm, on a shared base."""

from .adapt import AdaptModel
from .assess import AssessAccuracy
from .assess_sample import DrawSample
from .detect import DetectChange
from .detect_area import DetectChangeInArea
from .export_review import ExportForReview

ALGORITHMS = (
    DetectChange,
    DetectChangeInArea,
    ExportForReview,
    DrawSample,
    AssessAccuracy,
    AdaptModel,
)
"""In the order of an analyst's work."""
