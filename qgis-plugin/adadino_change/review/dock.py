# SPDX-License-Identifier: GPL-2.0-or-later
"""The panel *Review changes*: A right, R wrong, U unsure, J next, K previous, Z undo.

F hides and shows one of the images. In a sample of pixels A is change and R is no change.
"""

from __future__ import annotations

from typing import Any, Callable

from qgis.core import (
    NULL,
    QgsCoordinateTransform,
    QgsFeature,
    QgsGeometry,
    QgsMapLayerProxyModel,
    QgsProject,
    QgsRectangle,
    QgsVectorLayer,
)
from qgis.gui import QgsHighlight, QgsMapLayerComboBox
from qgis.PyQt.QtCore import Qt
from qgis.PyQt.QtGui import QColor, QKeySequence
from qgis.PyQt.QtWidgets import (
    QDockWidget,
    QGridLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QShortcut,
    QVBoxLayout,
    QWidget,
)

from ..command.errors import CommandError
from .layer import is_sample, read_session, write_verdict
from .session import Change, Session
from .style import prepare

MARGIN = {"area": 2.5, "pixel": 60.0}
"""How much wider the view is than what is judged."""
LONGEST = 200
"""Letters of a value that the panel shows."""
KEYS = ("A", "R", "U")
"""The keys of the three verdicts."""
SHOWN = ("id", "list", "area_m2", "prob_mean", "note")
"""Columns whose values the panel shows."""


class ReviewDock(QDockWidget):
    """Steps through the areas of a layer and takes verdicts by key."""

    def __init__(self, iface: Any) -> None:
        super().__init__("Review changes", iface.mainWindow())
        self.setObjectName("AdadinoReview")
        self.canvas = iface.mapCanvas()
        self.session = Session([])
        self.buttons: list[QPushButton] = []
        self.shortcuts: list[QShortcut] = []
        self.layers = QgsMapLayerComboBox()
        self.layers.setFilters(QgsMapLayerProxyModel.PolygonLayer)
        self.images = QgsMapLayerComboBox()
        self.images.setFilters(QgsMapLayerProxyModel.RasterLayer)
        self.mark: QgsHighlight | None = None
        self.status, self.facts = QLabel(), QLabel()
        for label in (self.status, self.facts):  # both show what is in somebody's file
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.note = QLineEdit()
        self.note.setPlaceholderText("Note to the next verdict")
        self._lay_out()
        self.layers.layerChanged.connect(self.open)
        self.visibilityChanged.connect(self._listen)
        self.open(self.layers.currentLayer())

    def _lay_out(self) -> None:
        body, column, buttons = QWidget(), QVBoxLayout(), QGridLayout()
        above, below = QLabel("Layer of areas or pixels to judge"), QLabel("Image that blinks")
        for widget in (
            above, self.layers, below, self.images, self.status, self.facts, self.note
        ):  # fmt: skip
            if isinstance(widget, QLabel):
                widget.setWordWrap(True)
            column.addWidget(widget)
        for place, (text, key, act) in enumerate(self._acts()):
            button = QPushButton(f"{text} ({key})")
            button.clicked.connect(act)
            buttons.addWidget(button, place // 3, place % 3)
            self.buttons.append(button)
            # Where the map or the panel has the keyboard; a letter in the note stays a letter.
            for owner in (self, self.canvas):
                shortcut = QShortcut(QKeySequence(key), owner)
                shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
                shortcut.activated.connect(act)
                self.shortcuts.append(shortcut)
        column.addLayout(buttons)
        column.addStretch()
        body.setLayout(column)
        self.setWidget(body)

    def _acts(self) -> list[tuple[str, str, Callable[..., None]]]:
        return [
            ("", KEYS[0], lambda *_: self.judge(0)),
            ("", KEYS[1], lambda *_: self.judge(1)),
            ("", KEYS[2], lambda *_: self.judge(2)),
            ("Previous", "K", lambda *_: self.step(-1)),
            ("Next", "J", lambda *_: self.step(1)),
            ("Undo", "Z", lambda *_: self.undo()),
            ("Blink", "F", lambda *_: self.blink()),
        ]

    def _listen(self, visible: bool) -> None:
        """Give the keys of the map back while the panel is closed, and take the mark away."""
        if self.mark is not None:
            self.mark.setVisible(visible)
        for shortcut in self.shortcuts:
            shortcut.setEnabled(visible)

    def open(self, layer: QgsVectorLayer | None) -> None:
        """Begin with a layer, or say why it cannot be judged."""
        self.session, self.mark = Session([]), None
        if layer is None:
            self._say("Add the layer that Export for review or Draw a sample to judge wrote.")
            return
        try:
            self.session = read_session(layer)
        except CommandError as error:
            self._say(str(error))
            return
        prepare(layer)
        self.show_current()

    def judge(self, word: int) -> None:
        """Give the current area the verdict of a key, and fly to the next."""
        change = self.session.judge(self.session.words[word])
        if change is not None and self._write(change, self.note.text() or None):
            self.note.clear()
            self.show_current()

    def undo(self) -> None:
        """Take the last verdict back."""
        change = self.session.undo()
        if change is not None and self._write(change):
            self.show_current()

    def step(self, by: int) -> None:
        """Look at the next area or the one before."""
        self.session.step(by)
        self.show_current()

    def show_current(self) -> None:
        """Fly to the current area and say what is known of it."""
        layer, area = self.layers.currentLayer(), self.session.current
        self._say(self.session.counts())
        if layer is None or area is None:
            return
        feature = layer.getFeature(area.fid)
        texts = []
        for name in SHOWN:
            value = feature[name] if feature.fieldNameIndex(name) >= 0 else None
            if value not in (None, NULL):
                text = f"{value:.4g}" if isinstance(value, float) else str(value)[:LONGEST]
                texts.append(f"{name} {text}")
        self.facts.setText(f"{area.verdict or 'to judge'}: {', '.join(texts)}")
        self._mark(layer, feature)
        self.canvas.setExtent(self._view(layer, feature.geometry()))
        self.canvas.refresh()

    def _mark(self, layer: QgsVectorLayer, feature: QgsFeature) -> None:
        """Draw a thick outline; a selection would cover what is to be judged."""
        self.mark = QgsHighlight(self.canvas, feature, layer)
        self.mark.setColor(QColor(0, 229, 255))
        self.mark.setFillColor(QColor(0, 0, 0, 0))
        self.mark.setWidth(4)
        self.mark.show()

    def blink(self) -> None:
        """Hide or show the upper image, so that the other date is seen in its place."""
        image = self.images.currentLayer()
        node = image and QgsProject.instance().layerTreeRoot().findLayer(image.id())
        if node:
            node.setItemVisibilityChecked(not node.itemVisibilityChecked())

    def _view(self, layer: QgsVectorLayer, outline: QgsGeometry) -> QgsRectangle:
        target = self.canvas.mapSettings().destinationCrs()
        move = QgsCoordinateTransform(layer.crs(), target, QgsProject.instance())
        box = move.transformBoundingBox(outline.boundingBox())
        box.scale(MARGIN["pixel" if is_sample(layer) else "area"])
        return box

    def _write(self, change: Change, note: str | None = None) -> bool:
        layer = self.layers.currentLayer()
        try:
            write_verdict(layer, change, note)
        except CommandError as error:
            self.open(layer)  # show what is in the file, not what was meant
            self._say(str(error))
            return False
        return True

    def _say(self, text: str) -> None:
        self.status.setText(text)
        self.facts.clear()
        for button in self.buttons:
            button.setEnabled(self.session.current is not None)
        for button, word, key in zip(self.buttons, self.session.words, KEYS):
            button.setText(f"{word.capitalize()} ({key})")
