"""The worker by itself, without a server."""

from __future__ import annotations

import io
import json

import pytest

from adadino.engine import Engine
from adadino.errors import ConfigError
from adadino.export import ExportOptions, export
from adadino.model.adadino import AdaDINO
from adadino.peers import build_peer
from adadino.web.jobs.worker import Worker
from tests.web.models import small_checkpoint


@pytest.mark.parametrize(("engine", "kind"), [("auto", AdaDINO), ("bf16", Engine)])
def test_it_holds_the_engine_that_was_asked_for(tmp_path, engine, kind):
    source = small_checkpoint(tmp_path / "model")
    said = io.StringIO()
    setup = {"models": [["m", str(source)]], "backbone": None, "device": "cpu", "engine": engine}
    worker = Worker(setup, said)
    assert json.loads(said.getvalue())["speeds"]["m"] > 0
    assert isinstance(worker._model("m"), kind)


@pytest.mark.slow
def test_it_takes_an_exported_model_of_its_tiles(tmp_path):
    pytest.importorskip("onnxruntime", reason="exported models need onnxruntime")
    pytest.importorskip("onnxscript", reason="exporting needs onnxscript")
    model = build_peer("fc-ef").eval()  # exported in seconds, and nothing here depends on the model
    setup = {"backbone": None, "device": "cpu", "engine": "auto"}
    for size, name in ((None, "any.onnx"), (64, "small.onnx")):
        export(model, tmp_path / name, ExportOptions(size=size))
    said = io.StringIO()
    path = str(tmp_path / "any.onnx")
    worker = Worker({**setup, "models": [["m", path]]}, said)
    assert json.loads(said.getvalue())["speeds"]["m"] > 0
    assert worker._model("m") == path
    with pytest.raises(ConfigError, match=r"takes tiles of 64 pixels only, the page has 256"):
        Worker({**setup, "models": [["m", str(tmp_path / "small.onnx")]]}, said)
    with pytest.raises(ConfigError, match="holds its backbone; leave --backbone out"):
        Worker({**setup, "backbone": "b.pth", "models": [["m", path]]}, said)
