"""A model of more bands: exactly the model of red, green and blue at the start."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from adadino.bands import BandsConfig
from adadino.build import new_model
from adadino.checkpoint import load, save
from adadino.engine import for_inference
from adadino.errors import ConfigError, InputError
from adadino.export.write import export
from adadino.model.bands import FLOOR, MOST, standardize
from adadino.training.adapt.features import check_model
from adadino.training.start import start_from

FIVE = BandsConfig(names=("B02", "B03", "B04", "B08", "B11"), low=(0.0,), high=(3000.0,), width=8)


def pair(bands: int = 5, batch: int = 2, side: tuple[int, int] = (37, 52)):
    return torch.rand(2, batch, bands, *side, generator=torch.Generator().manual_seed(1))


def with_bands(model, **more):
    config = dataclasses.replace(model.config, bands=FIVE, **more)
    other = new_model(config)
    missing = other.load_state_dict(model.state_dict(), strict=False)
    assert not missing.unexpected_keys
    assert all(name.startswith("band_stream.") for name in missing.missing_keys)
    return other.eval()


@torch.no_grad()
def test_a_model_with_bands_begins_as_exactly_the_model_without(small) -> None:
    plain = new_model(small).eval()
    before, after = pair()
    with_five = with_bands(plain)(before, after)
    without = plain(before[:, [2, 1, 0]], after[:, [2, 1, 0]])
    assert torch.equal(with_five.logits, without.logits)
    assert torch.equal(with_five.pyramid[0], without.pyramid[0])


@torch.no_grad()
def test_the_further_bands_count_once_their_stream_has_learnt(small) -> None:
    model = with_bands(new_model(small))
    before, after = pair()
    start = model(before, after).logits
    torch.nn.init.normal_(model.band_stream.head.weight)
    moved = model(before, after).logits
    assert not torch.equal(moved, start)
    after[:, 4] = after[:, 4].flip(-1)
    assert not torch.equal(model(before, after).logits, moved)


def test_the_stream_gets_a_gradient_from_the_first_step(small) -> None:
    model = with_bands(new_model(small)).train()
    model(*pair()).logits.square().mean().backward()
    assert model.band_stream.head.weight.grad.abs().sum() > 0


@torch.no_grad()
def test_an_order_invariant_model_stays_so_with_bands(small) -> None:
    model = with_bands(new_model(dataclasses.replace(small, order_invariant=True)))
    torch.nn.init.normal_(model.band_stream.head.weight)
    before, after = pair()
    torch.testing.assert_close(model(before, after).logits, model(after, before).logits)


@torch.no_grad()
def test_a_gain_and_an_offset_of_a_date_do_not_reach_the_stream() -> None:
    images = 0.2 + 0.5 * torch.rand(4, 5, 40, 40)
    deviation, mean = torch.std_mean(images[0, 0], correction=0)
    expected = ((images[0, 0] - mean) / (deviation + FLOOR)).clamp(-MOST, MOST)
    torch.testing.assert_close(standardize(images)[0, 0], expected)
    moved = standardize(images * 0.9 + 0.05)
    assert (moved - standardize(images)).abs().max() < 0.05


@torch.no_grad()
@pytest.mark.parametrize("side", [(8, 8), (37, 52)])
def test_a_model_that_enlarges_answers_at_the_image_s_own_size(small, side) -> None:
    plain = new_model(small)
    model = with_bands(plain, enlarge=2)
    before, after = pair(side=side)
    found = model(before, after).logits
    assert found.shape == (2, 2, *side)
    large = [torch.nn.functional.interpolate(one[:, [2, 1, 0]], scale_factor=2, mode="bilinear")
             for one in (before, after)]  # fmt: skip
    if side == (8, 8):  # nothing is padded: the enlarged pair through the plain model, averaged
        answer = torch.nn.functional.avg_pool2d(plain.eval()(*large).logits, 2)
        torch.testing.assert_close(found, answer)


def test_a_checkpoint_remembers_its_bands(small, tmp_path) -> None:
    model = with_bands(new_model(small))
    torch.nn.init.normal_(model.band_stream.head.weight)
    save(model, tmp_path / "model", with_backbone=True)
    again = load(tmp_path / "model")
    assert again.config.bands == FIVE
    before, after = pair()
    with torch.no_grad():
        assert torch.equal(again(before, after).logits, model(before, after).logits)


def test_training_may_start_from_a_model_without_bands(small, tmp_path) -> None:
    plain = new_model(small)
    save(plain, tmp_path / "plain", with_backbone=True)
    config = load(tmp_path / "plain").config
    model = start_from(str(tmp_path / "plain"), dataclasses.replace(config, bands=FIVE)).eval()
    before, after = pair()
    with torch.no_grad():
        found = model(before, after).logits
        assert torch.equal(found, plain.eval()(before[:, [2, 1, 0]], after[:, [2, 1, 0]]).logits)


def test_another_number_of_bands_is_named(small) -> None:
    model = with_bands(new_model(small))
    with pytest.raises(InputError, match=r"\(batch, 5, height, width\)"):
        model(*pair(bands=3))
    with pytest.raises(InputError, match="its 5 bands"):
        model.predict(torch.rand(3, 40, 40), torch.rand(3, 40, 40))
    assert model.predict(torch.rand(5, 40, 40), torch.rand(5, 40, 40)).shape == (40, 40)


def test_the_engine_leaves_such_models_alone(small) -> None:
    model = with_bands(new_model(small))
    assert for_inference(model) is model
    with pytest.raises(ConfigError, match="bands of its own"):
        for_inference(model, "bf16")


def test_what_knows_red_green_and_blue_alone_refuses_such_models(small, tmp_path) -> None:
    model = with_bands(new_model(small))
    with pytest.raises(ConfigError, match="only models of red, green and blue"):
        export(model, tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match="adapt learns from tiles of red, green and blue"):
        check_model(model, "decoder")
    with pytest.raises(ConfigError, match="no weights to export"):
        export(load("cva"), tmp_path / "model.onnx")
    assert not any(tmp_path.iterdir())
