# SPDX-License-Identifier: GPL-2.0-or-later
"""Judging the changed areas one by one. `session` needs no QGIS."""
