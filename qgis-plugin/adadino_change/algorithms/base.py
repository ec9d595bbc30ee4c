# SPDX-License-Identifier: GPL-2.0-or-later
"""What every algorithm does: find the command, check it, run it, report, hand over its results."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Callable, ClassVar

from qgis.core import (
    QgsProcessingAlgorithm,
    QgsProcessingContext,
    QgsProcessingException,
    QgsProcessingFeedback,
    QgsProcessingParameterDefinition,
)
from qgis.PyQt.QtCore import QCoreApplication, QThread
from qgis.PyQt.QtGui import QIcon

from ..command.abilities import check_able, version_of
from ..command.arguments import Call
from ..command.errors import CommandError
from ..command.progress import Line
from ..command.run import Finished, run_command
from ..settings import the_command
from .given import Given

ICON = str(Path(__file__).parents[1] / "icon.svg")


class CommandAlgorithm(QgsProcessingAlgorithm):
    """One verb of the command as an algorithm; see `detect` for the plainest one."""

    NAME = TITLE = HELP = ""
    TAGS: tuple[str, ...] = ()
    DIALOG: ClassVar[dict[str, str]] = {}
    """Options of the command that its messages may name, and the parameters that set them."""

    def name(self) -> str:
        """Return what comes after the colon in `adadino:detectchange`."""
        return self.NAME

    def displayName(self) -> str:
        """Return the name in the toolbox."""
        return self.TITLE

    def shortHelpString(self) -> str:
        """Return the text beside the dialog."""
        return self.HELP

    def tags(self) -> list[str]:
        """Return the words under which the toolbox finds the algorithm."""
        return ["change detection", "remote sensing", *self.TAGS]

    def icon(self) -> QIcon:
        """Return the algorithm's icon."""
        return QIcon(ICON)

    def createInstance(self) -> CommandAlgorithm:
        """Return a new instance: QGIS runs each in its own."""
        return type(self)()

    def canExecute(self) -> tuple[bool, str]:
        """Say whether there is a command, and if not how to install it."""
        try:
            the_command()
        except CommandError as error:
            return False, str(error)
        return True, ""

    def processAlgorithm(
        self,
        parameters: dict[str, Any],
        context: QgsProcessingContext,
        feedback: QgsProcessingFeedback | None,
    ) -> dict[str, Any]:
        """Run; every problem becomes one sentence in the log."""
        feedback = feedback or QgsProcessingFeedback()
        try:
            return self.work(Given(self, parameters, context, feedback))
        except CommandError as error:
            raise QgsProcessingException(self.in_dialog(str(error))) from error

    def in_dialog(self, text: str) -> str:
        """Return a message of the command with the names that its options have in the dialog."""
        hints = [
            f"{option} is '{self.parameterDefinition(name).description()}' in this dialog."
            for option, name in self.DIALOG.items()
            if option in text
        ]
        return " ".join([text, *hints])

    def work(self, given: Given) -> dict[str, Any]:
        """Do what the algorithm is for, and return its outputs."""
        raise NotImplementedError

    def add_advanced(self, parameter: QgsProcessingParameterDefinition) -> None:
        """Add a parameter that the dialog hides at first."""
        parameter.setFlags(parameter.flags() | QgsProcessingParameterDefinition.FlagAdvanced)
        self.addParameter(parameter)

    def run_call(self, call: Call, feedback: QgsProcessingFeedback) -> Finished:
        """Run the command with progress and cancel; return what it printed.

        Raises:
            CommandError: It is missing, too old, failed, or was cancelled.
        """
        command = the_command()
        call.add("--json", True)
        check_able(command, call.verb, call.names)
        words = call.words(command)
        feedback.pushInfo(f"adadino {version_of(command)}")
        feedback.pushCommandInfo(shlex.join(words))
        report = _Report(feedback, self.in_dialog)
        finished = run_command(words, on_line=report, is_cancelled=lambda: _is_cancelled(feedback))
        feedback.setProgress(100)
        return finished


def _is_cancelled(feedback: QgsProcessingFeedback) -> bool:
    """Whether the user pressed Cancel.

    QGIS runs a batch in the thread of its windows. There the button works only if somebody looks
    after the windows now and then.
    """
    app = QCoreApplication.instance()
    if app is not None and QThread.currentThread() == app.thread():
        app.processEvents()
    return feedback.isCanceled()


class _Report:
    """Hands the command's lines to QGIS: progress as a bar, warnings as warnings."""

    def __init__(self, feedback: QgsProcessingFeedback, in_dialog: Callable[[str], str]) -> None:
        self.feedback, self.in_dialog = feedback, in_dialog
        self.tenth = -1

    def __call__(self, line: Line) -> None:
        if line.kind == "progress" and line.percent is not None:
            self.feedback.setProgress(line.percent)
            # The text goes to the log as well, where a line a percent would be too many.
            if int(line.percent // 10) != self.tenth:
                self.tenth = int(line.percent // 10)
                self.feedback.setProgressText(line.text)
        elif line.kind == "warning":
            self.feedback.pushWarning(self.in_dialog(line.text))
        elif line.kind == "text" and line.text:  # an error is what the run ends with
            self.feedback.pushInfo(line.text)
