"""Figures: whole files, drawn without touching the caller's matplotlib."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from adadino.metrics import PRCurve
from adadino.reporting import pictures


def test_a_figure_that_fails_leaves_no_file(tmp_path):
    path = tmp_path / "a.png"
    with pytest.raises(ValueError, match="no"), pictures.figure(path, size=(2, 2)):
        raise ValueError("no")
    assert not any(tmp_path.iterdir())


def test_drawing_leaves_pyplot_and_its_backend_alone(tmp_path):
    code = (
        "import sys; from adadino.reporting.pictures import figure\n"
        f"with figure({str(tmp_path / 'a.png')!r}, 2, size=(4, 2)) as (_, axes):\n"
        "    axes[1].plot([0, 1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert Image.open(tmp_path / "a.png").size == (440, 220)


def test_the_precision_recall_curve_is_a_picture(tmp_path):
    line = np.linspace(0, 1, 8, endpoint=False)
    curve = PRCurve(line, 1 - line / 2, 1 - line, 1 - line)
    pictures.pr_curve(curve, tmp_path / "pr.png", marked=0.5, best=True)
    assert Image.open(tmp_path / "pr.png").size == (990, 418)
