"""The scene and the model are those of the tests of scenes."""

from __future__ import annotations

from tests.scene.conftest import model, scene

__all__ = ["model", "scene"]
