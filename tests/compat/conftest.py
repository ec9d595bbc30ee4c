from __future__ import annotations

from tests.cli.conftest import adadino

__all__ = ["adadino"]
