"""Models on the hub: a round trip changes no bit, offline or not; the card invents nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import adadino
from adadino import pretrained
from adadino.build import build
from adadino.config import BackboneConfig
from adadino.errors import AdaDINOError, ConfigError, WeightsError
from adadino.model.adadino import AdaDINO
from adadino.model.backbone import Backbone
from adadino.peers import build_peer
from tests.conftest import SMALL, randomise


@pytest.fixture
def backbone(tmp_path) -> Path:
    """Frozen weights in a file of their own."""
    path = tmp_path / "sat493m.safetensors"
    tensors = randomise(Backbone(BackboneConfig("small", 32, 4, 2, 64, registers=2))).state_dict()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return path


@pytest.fixture
def model(backbone) -> AdaDINO:
    model = build(SMALL, backbone)
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.eval()


def test_a_round_trip_through_a_folder_changes_no_bit(model, tmp_path):
    folder = pretrained.save_pretrained(model, tmp_path / "out")
    assert {path.name for path in folder.iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }
    again = pretrained.from_pretrained(folder)
    assert again.config == model.config
    state = again.state_dict()
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], t) for name, t in model.state_dict().items())
    before, after = torch.rand(2, 1, 3, 48, 48)
    with torch.inference_mode():
        assert torch.equal(again(before, after).logits, model(before, after).logits)


def test_the_backbone_is_named_and_not_copied(model, backbone, tmp_path):
    folder = pretrained.save_pretrained(model, tmp_path / "out")
    held = load_file(folder / "model.safetensors")
    assert held
    assert not any(name.startswith("encoder.backbone.") for name in held)
    named = json.loads((folder / "config.json").read_text())["model"]["backbone"]
    assert named["weights"] == str(backbone)
    assert named["fingerprint"] in (folder / "README.md").read_text()
    backbone.unlink()
    with pytest.raises(WeightsError, match="needs its backbone"):
        pretrained.from_pretrained(folder)


def cached(folder: Path, cache: Path, repo: str) -> None:
    """Lay a folder into huggingface_hub's cache as a download leaves it."""
    commit = "0" * 40
    place = cache / f"models--{repo.replace('/', '--')}"
    snapshot = place / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    for path in folder.iterdir():
        (snapshot / path.name).write_bytes(path.read_bytes())


def test_a_hub_id_is_found_in_the_cache_without_a_network(model, tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants", reason="adadino[hub]")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    cached(pretrained.save_pretrained(model, tmp_path / "out"), tmp_path / "cache", "owner/small")
    again = pretrained.from_pretrained("owner/small").state_dict()
    assert all(torch.equal(again[name], t) for name, t in model.state_dict().items())
    with pytest.raises(WeightsError, match="owner/other"):
        pretrained.from_pretrained("owner/other")


def test_the_card_holds_the_figures_it_was_given_and_no_others(model):
    bare = pretrained.hub_card(model)
    assert "Figures" not in bare
    assert "F1" not in bare
    assert "license" not in bare
    card = pretrained.hub_card(
        model,
        figures={"LEVIR-CD test": {"iou": 0.8412, "f1": 0.91}, "WHU-CD test": {"f1": 0.9}},
        licence="apache-2.0",
    )
    assert "| data | F1 | IoU |" in card
    assert "| LEVIR-CD test | 91.00 | 84.12 |" in card
    assert "| WHU-CD test | 90.00 |  |" in card
    assert "recall" not in card
    assert "license: apache-2.0" in card
    with pytest.raises(ConfigError, match="speed"):
        pretrained.hub_card(model, figures={"x": {"speed": 1.0}})
    with pytest.raises(ConfigError, match=r"is 91\.0"):
        pretrained.hub_card(model, figures={"x": {"f1": 91.0}})


class Api:
    """Stands for huggingface_hub.HfApi, and keeps what was uploaded."""

    made: list[tuple[str, bool]]
    files: dict[str, bytes]

    def create_repo(self, repo_id, *, private, exist_ok):
        assert exist_ok
        Api.made = [(repo_id, private)]

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        Api.files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        return f"https://hub/{repo_id}/commit/1"


def test_push_uploads_what_save_writes(model, tmp_path, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub", reason="adadino[hub]")
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    figures = {"test": {"f1": 0.5}}
    address = pretrained.push_to_hub(model, "owner/small", figures=figures, private=True)
    assert address == "https://hub/owner/small/commit/1"
    assert Api.made == [("owner/small", True)]
    folder = pretrained.save_pretrained(model, tmp_path / "out", figures=figures)
    assert Api.files == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_refused_upload_says_why_and_what_to_do(model, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub", reason="adadino[hub]")

    class Closed(Api):
        def create_repo(self, repo_id, *, private, exist_ok):
            raise PermissionError("401 Unauthorized")

    monkeypatch.setattr(huggingface_hub, "HfApi", Closed)
    with pytest.raises(AdaDINOError, match=r"401 Unauthorized.*hf auth login"):
        pretrained.push_to_hub(model, "owner/small")
    with pytest.raises(ConfigError, match="owner/name"):
        pretrained.push_to_hub(model, "small")


def test_the_package_has_the_functions_people_know(model, tmp_path):
    folder = adadino.save_pretrained(model, tmp_path / "m", figures={"here": {"f1": 0.5}})
    assert "50.00" in (folder / pretrained.CARD).read_text()
    again = adadino.from_pretrained(folder).state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in model.state_dict().items())
    assert adadino.push_to_hub is pretrained.push_to_hub


def test_the_bundled_model_comes_back_from_its_folder(tmp_path):
    """It carries its backbone, which no other file has; so must what is made of it."""
    model = adadino.load("tiny")
    folder = adadino.save_pretrained(model, tmp_path / "tiny")
    assert "in this repository" in (folder / pretrained.CARD).read_text()
    again = adadino.from_pretrained(folder)
    assert again.config == model.config
    state = again.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    twice = adadino.from_pretrained(adadino.save_pretrained(again, tmp_path / "twice"))
    assert twice.dino is not None


def test_a_peer_is_saved_and_loaded_too(tmp_path):
    peer = build_peer("fc-ef")
    again = adadino.from_pretrained(adadino.save_pretrained(peer, tmp_path / "peer"))
    assert type(again) is type(peer)
