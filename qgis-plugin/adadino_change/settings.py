# SPDX-License-Identifier: GPL-2.0-or-later
"""The one setting: where the command is. It is in Processing's options, under adadino."""

from __future__ import annotations

from pathlib import Path

from processing.core.ProcessingConfig import ProcessingConfig, Setting
from qgis.PyQt.QtGui import QIcon

from .command.find import find_command

GROUP = "adadino"
COMMAND = "ADADINO_COMMAND"


def register(icon: QIcon) -> None:
    """Add the setting to Processing's options."""
    ProcessingConfig.settingIcons[GROUP] = icon
    ProcessingConfig.addSetting(
        Setting(
            GROUP,
            COMMAND,
            "Path of the adadino command (empty: it is looked for)",
            "",
            valuetype=Setting.FILE,
        )
    )
    ProcessingConfig.readSettings()


def unregister() -> None:
    """Take the setting out of Processing's options; its value is kept."""
    ProcessingConfig.removeSetting(COMMAND)


def the_command() -> Path:
    """Return the command to run.

    Raises:
        CommandError: There is none.
    """
    return find_command(ProcessingConfig.getSetting(COMMAND) or "")
