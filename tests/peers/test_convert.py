"""Released checkpoints become ours, and the peers compute what their authors' code computes.

`released.json` holds facts about the authors' code: the names and shapes of its tensors, and logits
that it gave in float64 for the weights and images of `formula.py`, without dropout. In training
mode these depend on BatchNorm's statistics, which the released models take from one date at a time.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from adadino.checkpoint import load, save
from adadino.errors import ConfigError, WeightsError
from adadino.peers import build_peer
from adadino.peers.base import DropPath, Peer
from adadino.peers.mit import ReducedAttention
from adadino.peers.mobile_sam import our_name
from adadino.peers.released import RULES, load_released, translate
from tests.conftest import randomise
from tests.peers.formula import difference, formula, images

FACTS = json.loads((Path(__file__).parent / "released.json").read_text())
PARTS = json.loads((Path(__file__).parent / "parts.json").read_text())
SHAPES = {peer: {n: tuple(s) for n, s in said["tensors"].items()} for peer, said in FACTS.items()}


LARGE = ("rs-mamba", "changeformer", "cdmamba", "changetitans")
"""Seconds in float64; the others guard the same code in the quick tests."""
EVERY = [pytest.param(peer, marks=[pytest.mark.slow] if peer in LARGE else []) for peer in FACTS]


def without_dropout(model: Peer) -> Peer:
    for part in model.modules():
        if isinstance(part, nn.Dropout | nn.Dropout2d):
            part.p = 0.0
        elif isinstance(part, DropPath):
            part.rate = 0.0
        elif isinstance(part, ReducedAttention):
            part.dropout = 0.0
    return model


def test_the_facts_are_those_of_every_peer_that_can_be_converted():
    assert set(FACTS) == set(RULES)


@pytest.mark.parametrize("peer", EVERY)
@torch.no_grad()
def test_the_peer_computes_what_its_authors_code_computes(peer):
    model = without_dropout(build_peer(peer)).double()
    before, after = images()
    for mode in ("eval", "train"):
        model.load_state_dict(translate(peer, formula(SHAPES[peer])))
        model.train(mode == "train")
        found = difference(model(before, after).logits)
        # CDMamba scans 4,096 tokens some forty times, with float32 states.
        tolerance = 2e-5 if peer == "cdmamba" else 4e-6
        assert found == pytest.approx(FACTS[peer][mode], abs=tolerance), mode


@pytest.mark.parametrize("peer", ["bit", "snunet", "tinycd", "fc-siam-diff", "fc-siam-conc"])
@torch.no_grad()
def test_statistics_are_of_one_date_at_a_time(peer):
    """The first BatchNorm's running mean, restated: the first date's update, then the second's."""
    model = without_dropout(build_peer(peer)).train()
    norm = next(part for part in model.modules() if isinstance(part, nn.BatchNorm2d))
    seen: list[torch.Tensor] = []
    norm.register_forward_pre_hook(lambda _, given: seen.append(given[0].clone()))
    before, after = (image.float() for image in images())
    model(before, after)
    assert [len(batch) for batch in seen] == [2, 2]
    mean = torch.zeros(norm.num_features)
    for batch in seen:
        mean = 0.9 * mean + 0.1 * batch.mean((0, 2, 3))
    assert torch.allclose(norm.running_mean, mean, atol=1e-6)
    assert not torch.allclose(seen[0].mean((0, 2, 3)), seen[1].mean((0, 2, 3)), atol=1e-2)


@pytest.mark.parametrize("peer", EVERY)
def test_every_tensor_of_ours_comes_from_one_of_theirs(peer):
    theirs = formula(SHAPES[peer])
    ours = translate(peer, theirs)
    wanted = build_peer(peer).state_dict()
    assert {n: t.shape for n, t in ours.items()} == {n: t.shape for n, t in wanted.items()}
    idle = re.compile(
        r"resnet\.(layer4|fc)\.|(l_gf|g_gf|ag)([34]\.|\.|\d\.skip_scale)"
        r"|.+\.(mem\.memory_model|rotary_emb)\."
    )
    used = [tensor for name, tensor in theirs.items() if not idle.match(name)]
    total = sum(float(t.double().square().sum()) for t in used)
    assert sum(float(t.double().square().sum()) for t in ours.values()) == pytest.approx(total)


def released(peer: str, path: Path, **more: object) -> Path:
    tensors = {n: t.float() if t.is_floating_point() else t for n, t in theirs(peer).items()}
    torch.save({"model_G_state_dict": tensors, **more} if more else tensors, path)
    return path


def theirs(peer: str) -> dict[str, torch.Tensor]:
    return formula(SHAPES[peer])


def test_mobile_sams_file_becomes_the_sam_distance(tmp_path):
    encoder = randomise(build_peer("sam-distance"), 0.1).encoder
    names = {our_name(theirs): theirs for theirs in PARTS["encoder"]["tensors"]}
    held = {f"image_encoder.{names[name]}": t for name, t in encoder.state_dict().items()}
    torch.save(held, tmp_path / "mobile_sam.pt")
    model = load_released("sam-distance", tmp_path / "mobile_sam.pt")
    again = load(save(model, tmp_path / "sam"))
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(again.encoder.state_dict()[name], tensor)
    assert again.ancestors[0]["model"] == "mobile_sam.pt"
    with pytest.raises(WeightsError, match="it is not MobileSAM; give mobile_sam"):
        load_released("sam-distance", released("fc-ef", tmp_path / "other.pt"))
    with pytest.raises(WeightsError, match="there is no file"):
        load_released("sam-distance", tmp_path / "nowhere.pt")


def test_a_released_file_becomes_a_checkpoint(tmp_path):
    model = load_released("tinycd", released("tinycd", tmp_path / "levir_best.pth"))
    again = load(save(model, tmp_path / "tinycd"))
    before, after = (image.float() for image in images())
    assert torch.equal(again(before, after).logits, model(before, after).logits)
    assert again.ancestors[0]["model"] == "levir_best.pth"


def test_tensors_are_found_beside_the_optimiser_and_scores(tmp_path):
    """As BIT's and ChangeFormer's programs save them, scores being numpy's numbers."""
    path = tmp_path / "best_ckpt.pt"
    held = {"epoch_id": 3, "best_val_acc": np.float64(0.9), "optimizer_G_state_dict": {"state": {}}}
    assert load_released("bit", released("bit", path, **held)).config.peer == "bit"


def test_names_of_data_parallel_are_known(tmp_path):
    torch.save({f"module.{n}": t.float() for n, t in theirs("fc-ef").items()}, tmp_path / "x.pth")
    assert load_released("fc-ef", tmp_path / "x.pth").config.peer == "fc-ef"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"linear.weight": torch.zeros(1)}, "linear.weight is no tensor of fc-ef"),
        ({}, "lacks encoder"),
        ([1, 2], "holds no tensors by name"),
        (nn.Linear(1, 1), "holds Python objects"),
    ],
)
def test_what_is_not_the_peers_file_is_refused(given, said, tmp_path):
    torch.save(given, tmp_path / "x.pth")
    with pytest.raises(WeightsError, match=said):
        load_released("fc-ef", tmp_path / "x.pth")


def test_a_tensor_of_another_shape_and_a_missing_file_are_named(tmp_path):
    wrong = theirs("fc-siam-diff") | {"conv11.weight": torch.zeros(16, 6, 3, 3)}
    torch.save(wrong, tmp_path / "x.pth")
    with pytest.raises(WeightsError, match=r"\(16, 6, 3, 3\)"):
        load_released("fc-siam-diff", tmp_path / "x.pth")
    with pytest.raises(WeightsError, match="there is no file"):
        load_released("fc-ef", tmp_path / "nowhere.pth")
    with pytest.raises(ConfigError, match="cannot be converted; known are"):
        load_released("unet", tmp_path / "x.pth")
