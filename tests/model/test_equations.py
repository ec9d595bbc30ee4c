"""What a reader looks for is where he looks: every equation of the paper, and CGLA's layers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import adadino
from adadino.config import CGLAConfig
from adadino.model.cgla import CGLA

MODEL = Path(adadino.__file__).parent / "model"


@pytest.mark.parametrize("number", range(1, 16))
def test_every_equation_is_tagged_in_the_model(number):
    text = "".join(path.read_text() for path in sorted(MODEL.glob("*.py")))
    assert re.search(rf"Eq\. {number}(?![\d-])", text)


def test_cglas_layers_go_by_the_names_that_checkpoints_number():
    cgla = CGLA(dim=8, hidden=8, config=CGLAConfig())
    modules = {id(module): name for name, module in cgla.named_modules()}
    assert {name: modules[id(layer)] for name, layer in cgla.layers._asdict().items()} == {
        "relation": "f_rel.0",
        "relation_norm": "f_rel.1",
        "context": "f_ctx.0",
        "context_norm": "f_ctx.1",
        "delta_in": "f_delta.0",
        "delta_in_norm": "f_delta.1",
        "delta_local": "f_delta.3",
        "delta_local_norm": "f_delta.4",
        "delta_out": "f_delta.6",
        "local": "f_loc.0",
        "local_out": "f_loc.2",
    }
