from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.miniatures import EXPECTED, expect, write_splits


@pytest.fixture
def levir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two, one and one scenes of four tiles, laid out as LEVIR-CD is."""
    expect(monkeypatch, "levir-cd", "standard", EXPECTED)
    counts = {"train": 2, "val": 1, "test": 1}
    return write_splits(tmp_path / "LEVIR-CD", counts, (16, 16))
