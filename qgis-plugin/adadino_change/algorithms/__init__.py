# SPDX-License-Identifier: GPL-2.0-or-later
"""One file for each algorithm, on a shared base."""

from .detect import DetectChange

ALGORITHMS = (DetectChange,)
"""In the order of an analyst's work."""
