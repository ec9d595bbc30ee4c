from __future__ import annotations

from pathlib import Path

import pytest

from tests.geo.rasters import H, W, noise, write


@pytest.fixture
def rgb(tmp_path: Path) -> Path:
    """The plainest image: three bands of bytes."""
    return write(tmp_path / "rgb.tif", noise(3, H, W), photometric="RGB")
