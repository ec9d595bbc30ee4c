"""The worker by itself, without a server."""

from __future__ import annotations

import io
import json

import pytest

from adadino.engine import Engine
from adadino.model.adadino import AdaDINO
from adadino.web.worker import Worker
from tests.web.models import small_checkpoint


@pytest.mark.parametrize(("engine", "kind"), [("auto", AdaDINO), ("bf16", Engine)])
def test_it_holds_the_engine_that_was_asked_for(tmp_path, engine, kind):
    source = small_checkpoint(tmp_path / "model")
    said = io.StringIO()
    setup = {"models": [["m", str(source)]], "backbone": None, "device": "cpu", "engine": engine}
    worker = Worker(setup, said)
    assert json.loads(said.getvalue())["speeds"]["m"] > 0
    assert isinstance(worker._model("m"), kind)
