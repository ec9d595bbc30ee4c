"""`adadino info`: the card, for people and for programs."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from adadino.checkpoint import save
from adadino.cli.app import app
from adadino.config import ClassesConfig, preset
from adadino.model.adadino import AdaDINO
from tests.conftest import SMALL, with_bscs


@pytest.fixture
def card(adadino):
    def read(*arguments: object) -> dict[str, Any]:
        code, out, err = adadino("info", *arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return read


@pytest.mark.parametrize(("k", "published"), [(6, 842.99), (16, 1360.83)])
def test_the_papers_model_has_the_papers_figures(card, k, published):
    data = card("--preset", "vitl16", "--k", k)
    params = data["params"]
    assert params["cgla"] == 35_876_880
    assert params["bscs"] == 25_270_656
    assert params["cpgr"] == pytest.approx(9.41e6, abs=5000)
    assert params["neck"] == 166_528
    parts = [params[part] for part in ("backbone", "cgla", "bscs", "cpgr", "neck")]
    assert params["total"] == sum(parts) == params["trainable"] + params["frozen"]
    assert params["frozen"] == params["backbone"]
    assert data["gflops"] == pytest.approx(published, abs=0.05)
    assert data["paper"]["gflops"] == published
    assert data["paper"]["params"] == {"cgla": 35.88e6, "bscs": 25.27e6, "cpgr": 9.41e6}
    assert (data["k"], data["chunks"], data["size"]) == (k, 16, 256)
    assert data["normalization"]["mean"] == [0.430, 0.411, 0.296]
    assert "DINOv3 License" in data["licence"]["backbone"]
    assert data["next"].startswith("adadino ")


def test_a_mistyped_name_lists_presets_and_peers(adadino):
    code, out, err = adadino("info", "fc-eff")
    assert (code, out) == (1, "")
    assert "there is no checkpoint fc-eff" in err
    assert "Or name a preset or a peer: " in err
    assert {"vitl16,", "fc-ef,", "unet,"} <= set(err.split())
    assert "a peer: " not in adadino("info", "runs/fc-eff").err  # a path is no name


def test_the_paper_is_quoted_for_its_own_model_only(card):
    for arguments in (("--preset", "vitb16"), ("--preset", "vitl16", "--size", "128")):
        assert card(*arguments)["paper"] == {"params": None, "gflops": None}
    assert card("--preset", "vitl16", "--k", 5)["paper"]["gflops"] is None  # not in Table 3


def test_a_checkpoint_describes_itself(card, small, tmp_path):
    folder = save(AdaDINO(with_bscs(small, k=5)), tmp_path / "c")
    data = card(folder)
    assert (data["backbone"], data["k"], data["chunks"]) == ("small", 5, 8)
    assert data["params"]["total"] == sum(p.numel() for p in AdaDINO(small).parameters())


def test_people_see_the_papers_column(adadino):
    code, out, _ = adadino("info", "--preset", "vitl16")
    assert code == 0
    lines = {line.strip("│ ").split("│")[0].strip(): line for line in out.splitlines()}
    assert "ours" in out
    assert "paper" in out
    assert "35,876,880" in lines["cgla"]
    assert "35.88M" in lines["cgla"]
    assert "25.27M" in lines["bscs"]
    assert "9.41M" in lines["cpgr"]
    gflops = next(line for name, line in lines.items() if name.startswith("GFLOPs"))
    assert "842.99" in gflops
    assert "843.01" in gflops  # ours
    assert "next: adadino" in out
    assert "0.43, 0.411, 0.296" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--preset", "vitx"), "unknown preset 'vitx'; there are tiny, vits16"),
        (("--preset", "tiny", "--k", "17"), "bscs.k is 17, must be between 1 and bscs.chunks = 16"),
        (("--preset", "tiny", "here"), "give a model or --preset, not both"),
        (("nowhere.safetensors",), "there is no checkpoint nowhere.safetensors"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(adadino, arguments, message):
    code, out, err = adadino("info", *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("adadino: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [("--prest", "tiny"), ("--k", "six"), ("--size", "0")])
def test_a_wrong_option_is_exit_code_2(adadino, arguments):
    code, out, err = adadino("info", *arguments)
    assert (code, out) == (2, "")
    assert arguments[0] in err


def test_the_installed_command_prints_no_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "adadino", "info", "--preset", "vitx"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith("adadino: unknown preset 'vitx'")
    assert len(done.stderr.splitlines()) == 1


def test_the_default_is_the_tiny_preset(card):
    data = card()
    assert data["name"] == "tiny"
    assert data["k"] == preset("tiny").bscs.k


def test_info_says_which_weights_it_found(tmp_path):
    import torch

    from adadino.config import preset
    from adadino.model.backbone import Backbone
    from tests.model.test_weights import meta

    file = tmp_path / "dinov3_tiny_pretrain_sat493m-0.pth"
    torch.save(meta(Backbone(preset("tiny").backbone)), file)
    result = CliRunner().invoke(app, ["info", "--backbone", str(file), "--json"])
    card = json.loads(result.stdout)
    assert card["name"] == "tiny"
    assert card["weights"]["layout"] == "meta"
    assert card["weights"]["fingerprint"].startswith("sha256:")
    assert card["normalization"]["mean"] == [0.430, 0.411, 0.296]
    shown = CliRunner().invoke(app, ["info", "--backbone", str(file)]).stdout
    assert "meta layout" in shown


def test_a_model_says_what_it_descends_from(adadino, tmp_path):
    model = AdaDINO(SMALL)
    model.ancestors = ({"model": "runs/first/best", "digest": "sha256:0123456789abcdef"},)
    save(model, tmp_path, with_backbone=True)
    assert (
        "descends from: runs/first/best (sha256:0123456789abcdef)" in adadino("info", tmp_path).out
    )
    assert json.loads(adadino("info", tmp_path, "--json").out)["ancestors"] == list(model.ancestors)
    assert json.loads(adadino("info", "tiny", "--json").out)["ancestors"] == []


def test_a_model_with_classes_names_them(adadino, tmp_path):
    classes = ClassesConfig(("water", "tree"), ("#000080", "#008000"))
    save(AdaDINO(dataclasses.replace(SMALL, classes=classes)), tmp_path, with_backbone=True)
    assert "tells what changed into what: water, tree" in adadino("info", tmp_path).out
    said = json.loads(adadino("info", tmp_path, "--json").out)
    assert said["classes"] == {"water": "#000080", "tree": "#008000"}
    assert said["params"]["classes"] > 0
    assert json.loads(adadino("info", "tiny", "--json").out)["classes"] is None
