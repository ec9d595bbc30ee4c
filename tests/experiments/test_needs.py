"""What a row needs from elsewhere: a teacher, a backbone with sorted units."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from adadino.experiments import needs
from adadino.experiments.dinov2 import DINOV2_PRUNING
from adadino.experiments.needs import prepared, waits
from adadino.experiments.runner import reproduce
from adadino.experiments.runs import run_config, write_stand_in
from adadino.experiments.setting import Setting
from adadino.experiments.table import only
from adadino.model.units import unit_contributions
from adadino.model.weights import make_backbone, read_backbone

ROWS = {row.name: row for row in DINOV2_PRUNING.rows}


def test_sorted_units_are_made_once_and_are_the_row_s_backbone(tmp_path, monkeypatch):
    row, setting = ROWS["k=6, sorted units"], Setting(out=tmp_path, quick=True, device="cpu")
    for name in ("levir", "clcd"):
        write_stand_in(tmp_path, name)
    monkeypatch.setattr(needs, "SAMPLE", 2)
    made = prepared(row, 0, setting)
    assert not waits(row)
    config = run_config(row, 0, setting, **made)
    assert config.model.backbone.weights == made["backbone"]
    assert config.output != run_config(ROWS["k=6"], 0, setting).output
    backbone = make_backbone(read_backbone(made["backbone"], config.model.backbone))
    image = torch.randn(2, 3, 128, 128)
    found = unit_contributions(backbone, [image])[:, :384].sum(1)
    assert (found > 0.505 * unit_contributions(backbone, [image]).sum(1)).all()  # of random ones

    def never(*_: object) -> None:
        raise AssertionError("sorted again")

    monkeypatch.setattr(needs, "sort_units", never)
    assert prepared(row, 1, setting) == made  # whatever the seed
    said = json.loads((Path(made["backbone"]) / "config.json").read_text())
    assert said["grid_offset"] == config.model.backbone.grid_offset


@pytest.mark.slow
def test_a_taught_row_trains_its_teacher_first(tmp_path):
    table = only(DINOV2_PRUNING, ["k=16", "k=6, annealed, teacher, sorted"])
    setting = Setting(out=tmp_path, quick=True, device="cpu")
    filled = reproduce(table, setting)
    assert [len(one.ours["f1_levir"]) for one in filled] == [1, 1]
    runs = [path.parent for path in tmp_path.glob("runs/*/*/final/config.json")]
    assert len(runs) == 2  # the teacher is the row k=16
    taught = [json.loads((run / "config.json").read_text()) for run in runs]
    budgets = sorted(one["model"]["bscs"]["k"] for one in taught)
    assert budgets == [6, 16]
