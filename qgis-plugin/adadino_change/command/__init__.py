# SPDX-License-Identifier: GPL-2.0-or-later
"""The `adadino` command: where it is, what it can do, how it is run. Nothing here needs QGIS."""
