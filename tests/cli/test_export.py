"""`adadino export`: what it prints, and how it refuses."""

from __future__ import annotations

import json

import pytest
import torch
from PIL import Image

from adadino.checkpoint import load, save
from adadino.model.adadino import AdaDINO
from tests.conftest import SMALL, randomise, with_cgla, with_cpgr


@pytest.fixture
def checkpoint(tmp_path):
    few = with_cpgr(with_cgla(SMALL, mode="off"), prior=(), refiner=False)
    model = randomise(AdaDINO(few), 0.3)
    for block in model.encoder.backbone.blocks:
        block.ls2.data *= 10  # so that it matters which chunks run
    return save(model, tmp_path / "model", with_backbone=True)


@pytest.mark.slow
def test_export_prints_the_difference_and_names_the_file(adadino, checkpoint, tmp_path):
    for date in "AB":
        (tmp_path / "pairs" / date).mkdir(parents=True)
        for name in ("1.png", "2.png"):
            pixels = torch.randint(256, (40, 40, 3), dtype=torch.uint8).numpy()
            Image.fromarray(pixels).save(tmp_path / "pairs" / date / name)
    target = tmp_path / "m.pt2"
    options = ["--size", 40, "--selection", "static", "--samples", tmp_path / "pairs", "--k", 2]
    said = adadino("export", checkpoint, "-o", target, *options, "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert told["output"] == str(target)
    assert told["bytes"] == target.stat().st_size
    assert told["worst_difference"] <= told["tolerance"]
    assert (told["metadata"]["k"], told["metadata"]["selection"]) == (2, "static")
    assert len(told["metadata"]["kept_chunks"][0]) == 2
    said_inside = {"threshold": "", "worst_difference": ""}
    program = torch.export.load(target, extra_files=said_inside)
    model, pair = load(checkpoint), torch.rand(2, 1, 3, 40, 40)
    with torch.inference_mode():
        chunks = torch.tensor(told["metadata"]["kept_chunks"])
        expected, dense = (model(*pair, **how).logits for how in ({"chunks": chunks}, {"k": 8}))
        got = program.module()(*pair)
    assert torch.allclose(got, expected.softmax(1)[:, 1], atol=1e-5)
    assert not torch.allclose(got, dense.softmax(1)[:, 1], atol=1e-4)
    assert json.loads(said_inside["threshold"]) == 0.5
    assert json.loads(said_inside["worst_difference"]) == told["worst_difference"]
    refused = adadino("export", checkpoint, "-o", target)
    assert refused.code == 1
    assert "--overwrite" in refused.err


def test_mistakes_are_one_sentence_and_leave_no_file(adadino, checkpoint, tmp_path):
    target = tmp_path / "m.onnx"
    for options, words in (
        (["--selection", "static"], "--samples"),
        (["--selection", "static", "--samples", tmp_path], "no images in"),
        (["--k", 99], "k is 99"),
        (["--opset", 9], "opset is 9"),
    ):
        said = adadino("export", checkpoint, "-o", target, *options)
        assert said.code == 1
        assert words in said.err
        assert len(said.err.strip().splitlines()) <= 2
    assert not target.exists()


def test_predict_with_an_onnx_file_takes_no_backbone(adadino, tmp_path):
    said = adadino(
        "predict", "a.tif", "b.tif", "-o", tmp_path / "c.tif", "--model", "m.onnx",
        "--backbone", "b.pth",
    )  # fmt: skip
    assert said.code == 2
    assert "leave --backbone out" in said.err
