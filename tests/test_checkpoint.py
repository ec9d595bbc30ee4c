"""Checkpoints: what exactly they hold, that they come back to the bit, and what is refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import adadino
from adadino.build import build
from adadino.checkpoint import load, save
from adadino.config import LVD_MEAN, LVD_STD, SAT_MEAN
from adadino.errors import AdaDINOError, WeightsError
from adadino.model.adadino import AdaDINO
from adadino.model.backbone import Backbone
from adadino.source import read_settings
from tests.conftest import randomise, with_backbone, with_bscs, with_cgla, with_cpgr
from tests.model.keys import expected_keys


@pytest.fixture
def backbone(small, tmp_path) -> Path:
    """A file of backbone weights in our own layout, whose name says the normalisation."""
    path = tmp_path / "small-lvd1689m.safetensors"
    save_file(randomise(Backbone(small.backbone), 0.3).state_dict(), path)
    return path


@pytest.fixture
def model(small, backbone) -> AdaDINO:
    """A model on that backbone with nothing trained left at its initial value.

    Its predictions depend on everything: the pair, the normalisation, every tensor.
    """
    model = build(small, backbone)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not name.startswith("encoder.backbone.") and tensor.is_floating_point():
                lowest = 0.5 if name.endswith("running_var") else -0.5
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + lowest)
    return model.eval()


@pytest.fixture
def saved(model, tmp_path) -> Path:
    return save(model, tmp_path / "checkpoint")


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (40, 24, 3), dtype=np.uint8)


def predictions(model: AdaDINO) -> np.ndarray:
    return model.predict(image(0), image(1))


def edit(folder: Path, change) -> None:
    """Rewrite a checkpoint's tensors, keeping what it says of itself."""
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata=metadata)


# --- what a checkpoint holds ---


def test_a_checkpoint_holds_exactly_the_trained_tensors(small, saved):
    assert sorted(load_file(saved / "model.safetensors")) == sorted(expected_keys(small))
    assert sorted(p.name for p in saved.iterdir()) == ["config.json", "model.safetensors"]


def test_ablations_hold_less(small, tmp_path):
    dense = with_bscs(with_cgla(small, mode="off"), selection="off")
    baseline = with_cpgr(dense, refiner=False)
    held = set(load_file(save(AdaDINO(baseline), tmp_path / "c") / "model.safetensors"))
    gone = expected_keys(small) - held
    assert held < expected_keys(small)
    # Without CGLA there is no prior to weigh either.
    prefixes = ("encoder.cgla.", "encoder.bscs.", "refiner.")
    priors = {k for k in gone if k.endswith(("w_prior.weight", "w_prior.bias", "alpha_prior"))}
    assert len(priors) == 9
    assert all(k.startswith(prefixes) for k in gone - priors)
    assert not any(k.startswith(prefixes) for k in held)


@pytest.mark.parametrize("how", ["with_backbone", "trainable"])
def test_a_backbone_of_its_own_is_carried(small, tmp_path, how):
    config = with_backbone(small, trainable=how == "trainable")
    folder = save(AdaDINO(config), tmp_path / "c", with_backbone=how == "with_backbone")
    held = set(load_file(folder / "model.safetensors"))
    own = {f"encoder.backbone.{name}" for name in Backbone(config.backbone).state_dict()}
    assert held == expected_keys(small) | own


def test_config_json_names_the_backbone(saved, backbone):
    said = json.loads((saved / "config.json").read_text())
    assert said["format"] == 1
    assert said["model"]["backbone"]["weights"] == str(backbone)
    assert said["model"]["backbone"]["fingerprint"].startswith("sha256:")
    assert said["model"]["backbone"]["mean"] == list(LVD_MEAN)
    assert said == read_settings(saved)


def test_config_json_says_what_else_one_wants_but_never_another_model(model, saved):
    save(model, saved, extra={"f1": 0.9, "model": "mine"})
    assert read_settings(saved)["f1"] == 0.9
    load(saved)


def test_building_on_weights_takes_their_normalisation(small, backbone):
    assert small.backbone.mean == SAT_MEAN
    model = build(small, backbone)
    assert (model.config.backbone.mean, model.config.backbone.std) == (LVD_MEAN, LVD_STD)
    assert model.normalize.mean.flatten().tolist() == pytest.approx(LVD_MEAN)
    # Named by the configuration instead of by hand: the same.
    again = build(with_backbone(small, weights=str(backbone)))
    assert again.config.backbone == model.config.backbone


# --- that it comes back ---


def test_a_round_trip_changes_no_bit(model, saved, backbone):
    expected = predictions(model)
    assert not np.array_equal(expected, model.predict(image(2), image(1)))  # not a constant
    found = adadino.load(saved, backbone=backbone)
    assert np.array_equal(predictions(found), expected)
    assert not found.training
    assert not any(p.requires_grad for p in found.encoder.backbone.parameters())
    assert np.array_equal(predictions(load(saved)), expected)  # where config.json says
    assert np.array_equal(predictions(load(saved / "model.safetensors")), expected)
    (saved / "config.json").unlink()  # one file is enough
    assert np.array_equal(adadino.predict(image(0), image(1), model=saved), expected)


def test_a_checkpoint_with_its_backbone_needs_no_file(model, backbone, tmp_path):
    expected = predictions(model)
    folder = save(model, tmp_path / "whole", with_backbone=True)
    backbone.rename(tmp_path / "elsewhere.safetensors")
    assert np.array_equal(predictions(load(folder)), expected)
    with pytest.raises(WeightsError, match="carries its own backbone"):
        load(folder, backbone=tmp_path / "elsewhere.safetensors")


def test_half_precision_storage(model, tmp_path):
    folder = save(model, tmp_path / "half", dtype=torch.float16, with_backbone=True)
    stored = load_file(folder / "model.safetensors")
    kinds = {
        n: t.dtype for n, t in stored.items() if not n.endswith("num_batches_tracked")
    }.values()
    assert set(kinds) == {torch.float16}
    found = load(folder)
    assert {p.dtype for p in found.parameters()} == {torch.float32}
    assert np.allclose(predictions(found), predictions(model), atol=0.01)


def test_a_value_half_precision_cannot_hold_is_not_saved(model, tmp_path):
    with torch.no_grad():
        model.neck.necks[0].norm1.running_var[0] = 1e6
    with pytest.raises(WeightsError, match=r"neck\.necks\.0\.norm1\.running_var .*float16"):
        save(model, tmp_path / "half", dtype=torch.float16)
    assert not (tmp_path / "half").exists()
    save(model, tmp_path / "full")


def test_the_normalisation_of_training_outlives_the_backbones_name(model, saved, backbone):
    """A copy under a name that says nothing, or something else, must not change the input."""
    expected = predictions(model)
    assert model.config.backbone.mean == LVD_MEAN
    for name in ("weights.safetensors", "small-sat493m.safetensors"):
        backbone = backbone.rename(backbone.with_name(name))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.array_equal(predictions(load(saved, backbone=backbone)), expected)


# --- what is refused ---


def test_another_backbone_is_refused_with_both_fingerprints(small, saved, tmp_path):
    other = tmp_path / "other-lvd1689m.safetensors"
    save_file(randomise(Backbone(small.backbone), 0.2).state_dict(), other)
    trained_on = read_settings(saved)["model"]["backbone"]["fingerprint"]
    its_own = build(small, other).config.backbone.fingerprint
    assert trained_on != its_own
    with pytest.raises(WeightsError, match=f"{trained_on}.*{its_own}"):
        load(saved, backbone=other)


def test_a_backbone_that_moved_is_asked_for(saved, backbone):
    backbone.unlink()
    with pytest.raises(WeightsError, match=rf"{backbone.name}.*backbone=FILE"):
        load(saved)


def test_a_checkpoint_on_random_weights_asks_for_a_backbone(small, tmp_path):
    folder = save(AdaDINO(small), tmp_path / "c")
    with pytest.raises(WeightsError, match=r"names none; give backbone=FILE with the small"):
        load(folder)


ETA, POLICY = "encoder.cgla.2.eta", "encoder.bscs.policies.1.fc2.bias"


def _missing(tensors):
    del tensors[ETA]
    return rf"lacks {ETA}"


def _misshapen(tensors):
    tensors[POLICY] = torch.zeros(9)
    return rf"{POLICY} is \(9,\), the configuration needs \(8,\)"


def _not_a_number(tensors):
    tensors[POLICY][3] = float("nan")
    return rf"{POLICY} holds NaN or infinity"


def _unknown(tensors):
    tensors["encoder.cgla.9.eta"] = torch.zeros(())
    return r"holds encoder\.cgla\.9\.eta, which its own configuration has no place for"


@pytest.mark.parametrize("spoil", [_missing, _misshapen, _not_a_number, _unknown])
def test_spoiled_tensors_are_named(saved, spoil):
    said = []
    edit(saved, lambda tensors: said.append(spoil(tensors)))
    with pytest.raises(WeightsError, match=said[0]):
        load(saved)


BLOCK = "encoder.backbone.blocks.1.ls1"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.pop(BLOCK), r"blocks\.1\.ls1 is missing"),
        (lambda t: t.update({BLOCK: torch.zeros(3)}), r"blocks\.1\.ls1 is \(3,\), not \(32,\)"),
        (lambda t: t[BLOCK].fill_(float("inf")), r"blocks\.1\.ls1 holds NaN or infinity"),
    ],
    ids=["missing", "misshapen", "infinite"],
)
def test_spoiled_tensors_of_a_carried_backbone_are_named(model, tmp_path, spoil, message):
    folder = save(model, tmp_path / "whole", with_backbone=True)
    edit(folder, spoil)
    with pytest.raises(WeightsError, match=message):
        load(folder)


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_a_truncated_checkpoint_is_refused(saved, keep):
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(WeightsError, match=r"cannot read .*model\.safetensors"):
        load(saved)


def test_somebody_elses_safetensors_are_refused(backbone):
    with pytest.raises(WeightsError, match=r"is not an adadino checkpoint.*backbone="):
        load(backbone)


def test_an_edited_config_json_is_noticed(saved):
    path = saved / "config.json"
    said = json.loads(path.read_text())
    said["model"]["bscs"]["k"] = 4
    path.write_text(json.dumps(said))
    with pytest.raises(WeightsError, match=r"config\.json and the configuration inside"):
        load(saved)
    path.write_text("{")
    with pytest.raises(WeightsError, match=r"config\.json is not valid JSON"):
        load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, r"checkpoint format 2, this version reads 1; update adadino"),
        ({"model": {"bscs": {"kk": 1}}}, r"model\.safetensors: unknown setting model\.bscs\.kk"),
        ({"model": [1]}, "model must be a mapping"),
    ],
    ids=["future format", "unknown setting", "no mapping"],
)
def test_a_configuration_we_cannot_read_is_refused(saved, change, message):
    said = read_settings(saved) | change
    tensors = load_file(saved / "model.safetensors")
    save_file(tensors, saved / "model.safetensors", metadata={"adadino": json.dumps(said)})
    (saved / "config.json").unlink()
    with pytest.raises(WeightsError, match=message):
        load(saved)


def test_nothing_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    for name in ("empty", "nowhere", tmp_path / "nowhere", "empty/run", "a/b/c"):
        with pytest.raises(WeightsError, match=f"there is no checkpoint {name}: expected a folder"):
            load(name)


def test_a_preset_is_not_a_trained_model():
    with pytest.raises(WeightsError, match="vitl16 is a preset without trained weights"):
        load("vitl16")


def test_a_peer_s_name_is_not_a_trained_model():
    with pytest.raises(
        WeightsError, match=r"fc-ef is a peer without .*adadino train --model fc-ef"
    ):
        load("fc-ef")


@pytest.mark.parametrize("name", ["model.onnx", "model.pt2", "MODEL.ONNX"])
def test_an_exported_file_is_not_a_checkpoint(tmp_path, name):
    (tmp_path / name).write_bytes(b"graph")
    with pytest.raises(WeightsError, match=rf"{name} is an exported model, .*predict and serve"):
        load(tmp_path / name)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_sound_torch_file_is_called_what_it_is(model, tmp_path, zipped):
    path = tmp_path / "levir_best.pth"
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        WeightsError, match=r"levir_best\.pth is a file of torch\.save, not"
    ) as said:
        load(path)
    assert "download it again" not in str(said.value)


def test_an_engine_is_not_saved(model, tmp_path):
    with pytest.raises(WeightsError, match="save the model it was made from") as caught:
        save(adadino.optimize(model), tmp_path / "c")
    assert "build_peer" not in str(caught.value)
    assert not (tmp_path / "c").exists()


# --- whole or not at all ---


def test_a_failed_save_leaves_the_old_checkpoint_as_it_was(model, saved, monkeypatch):
    old = {path.name: path.read_bytes() for path in saved.iterdir()}

    def fill_the_disk(path, data):
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill_the_disk)
    with torch.no_grad():
        model.encoder.cgla["2"].eta.fill_(9)
    model.config = with_bscs(model.config, k=5)  # both files would change
    with pytest.raises(AdaDINOError, match=r"model\.safetensors: No space left on device"):
        save(model, saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == old


def test_a_checkpoint_is_as_readable_as_any_other_file(model, saved):
    reference = saved / "reference"
    reference.touch()
    for name in ("config.json", "model.safetensors"):
        assert (saved / name).stat().st_mode == reference.stat().st_mode
