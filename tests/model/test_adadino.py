"""The whole model: any input, frozen parts, ablations as configurations, compile and export."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from adadino.config import PRESETS, Config, CPGRConfig, StreamConfig
from adadino.errors import ConfigError, InputError
from adadino.model.adadino import AdaDINO
from tests.conftest import randomise, with_backbone, with_bscs, with_cgla, with_cpgr

RANKING = tuple(tuple(range(8)) for _ in range(4))

ABLATIONS = {
    "paper": lambda c: c,
    "frozen baseline": lambda c: with_cgla(c, mode="off"),
    "pair-blind": lambda c: with_cgla(c, mode="blind"),
    "without delta": lambda c: with_cgla(c, delta="none"),
    "symmetric delta": lambda c: with_cgla(c, delta="symmetric"),
    "prior none": lambda c: with_cpgr(c, prior=()),
    "prior spatial": lambda c: with_cpgr(c, prior=("spatial",)),
    "prior delta": lambda c: with_cpgr(c, prior=("delta",)),
    "prior local": lambda c: with_cpgr(c, prior=("local",)),
    "prior all": lambda c: with_cpgr(c, prior=("spatial", "delta", "local")),
    "static": lambda c: with_bscs(c, selection="static", ranking=RANKING),
    "random": lambda c: with_bscs(c, selection="random"),
    "bottom": lambda c: with_bscs(c, selection="bottom", ranking=RANKING),
    "off": lambda c: with_bscs(c, selection="off"),
    "two chunks": lambda c: with_bscs(c, chunks=2, k=1),
    "64 chunks": lambda c: with_bscs(c, chunks=64, k=63),
    "order-invariant": lambda c: dataclasses.replace(c, order_invariant=True),
    "no refiner": lambda c: with_cpgr(c, refiner=False),
}


def pair(batch: int = 2, height: int = 64, width: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(batch, 3, height, width), torch.rand(batch, 3, height, width)


@pytest.fixture
def model(small) -> AdaDINO:
    return randomise(AdaDINO(small), 0.1).eval()


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_is_a_configuration_that_trains_and_predicts(small, name):
    model = randomise(AdaDINO(ABLATIONS[name](small)), 0.2)
    output = model.train()(*pair())
    assert output.logits.shape == (2, 2, 64, 64)
    assert len(output.pyramid) == 4
    output.logits.square().mean().backward()
    assert all(p.grad is None for p in model.encoder.backbone.parameters())
    output = model.eval()(*pair(1, 30, 70))
    assert output.logits.shape == (1, 2, 30, 70)
    assert output.logits.isfinite().all()


@pytest.mark.parametrize("k", [3, 8], ids=["pruned", "dense"])
def test_order_invariance_by_construction(small, k):
    """Swapped dates give the same map to rounding; the paper's model gives another one."""
    before, after = pair(2)
    invariant = dataclasses.replace(small, order_invariant=True)
    moved = {}
    for name, config in (("invariant", invariant), ("paper", small)):
        model = randomise(AdaDINO(config), 0.5).double().eval()
        one, two = model(before, after, k=k).logits, model(after, before, k=k).logits
        moved[name] = ((one - two).abs().max() / one.std()).item()
    assert moved["invariant"] < 1e-6
    assert moved["paper"] > 0.1


def test_order_invariance_costs_no_parameter_and_keeps_the_midpoint(small):
    invariant = AdaDINO(dataclasses.replace(small, order_invariant=True))
    shapes = {n: p.shape for n, p in invariant.named_parameters()}
    assert shapes == {n: p.shape for n, p in AdaDINO(small).named_parameters()}
    adapter = invariant.encoder.cgla["0"].double()  # gamma_self is zero at the start
    x = torch.randn(4, 2 + 6, 32, dtype=torch.float64)
    y, _ = adapter(x, (2, 3))
    assert torch.allclose(y[:2] + y[2:], x[:2] + x[2:], atol=1e-12)
    assert (y - x).abs().max() > 1e-5


def test_without_selection_no_budget_is_taken(small):
    model = AdaDINO(with_bscs(small, selection="off")).eval()
    assert model.config.bscs.k == 8  # what runs, whatever was asked for
    with pytest.raises(ConfigError, match=r"k is 3, but bscs.selection=off"):
        model(*pair(), k=3)


@pytest.mark.parametrize(("dtype", "error"), [(torch.bfloat16, 0.3), (torch.float64, 1e-4)])
def test_a_model_with_a_stream_runs_in_another_type(small, dtype, error):
    model = AdaDINO(dataclasses.replace(small, stream=StreamConfig("lite0"))).eval()
    before, after = pair(1)
    exact = model(before, after).logits
    found = model.to(dtype)(before, after).logits
    assert (found - exact).abs().mean() < error * exact.abs().mean()


def test_ablations_of_cgla_have_the_same_parameters(small):
    counts = {
        name: sum(p.numel() for p in AdaDINO(ABLATIONS[name](small)).encoder.cgla.parameters())
        for name in ("paper", "pair-blind", "without delta", "symmetric delta")
    }
    assert len(set(counts.values())) == 1


@pytest.mark.parametrize(
    "size", [(1, 1), (8, 8), (16, 16), (17, 31), (64, 8), (1, 200), (96, 64)], ids=str
)
def test_any_size_goes_in_and_comes_out(model, size):
    output = model(*pair(1, *size))
    assert output.logits.shape == (1, 2, *size)
    assert output.logits.dtype == torch.float32
    assert output.logits.isfinite().all()


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_the_encoder_sees_the_image_enlarged(small, scale):
    model = AdaDINO(Config(small.backbone, small.cgla, small.bscs, small.cpgr, scale=scale))
    assert model.prepare(torch.cat(pair(1, 64, 48))).shape == (2, 3, 64 * scale, 48 * scale)
    assert model(*pair(1, 64, 48)).responses.delta.shape[-2:] == (
        64 * scale // 16,
        48 * scale // 16,
    )


def test_preparation_is_the_papers_interpolation_and_normalisation(small):
    model = AdaDINO(small)
    before, after = pair(1, 32, 32)
    got = model.prepare(model.pad(torch.cat((before, after))))
    for i, image in enumerate((before, after)):
        big = torch.nn.functional.interpolate(
            image, (64, 64), mode="bilinear", align_corners=True, antialias=True
        )
        for c, (mean, std) in enumerate(
            zip((0.430, 0.411, 0.296), (0.213, 0.156, 0.143), strict=True)
        ):
            assert torch.allclose(got[i, c], (big[0, c] - mean) / std, atol=1e-6)


def test_pixels_outside_the_image_are_the_edge_repeated(small):
    """A map must not depend on what it is padded with: padding by hand gives the same."""
    model = randomise(AdaDINO(small), 0.1).eval()
    before, after = pair(1, 30, 59)
    padded = [torch.nn.functional.pad(t, (0, 5, 0, 2), mode="replicate") for t in (before, after)]
    inside = model(*padded).logits[..., :30, :59]
    assert torch.allclose(model(before, after).logits, inside, atol=1e-5)


def test_a_pair_alone_equals_the_pair_in_a_batch_when_dense(model):
    before, after = pair(3)
    whole = model(before, after, k=8).logits
    for i in range(3):
        alone = model(before[i : i + 1], after[i : i + 1], k=8).logits
        assert torch.allclose(alone, whole[i : i + 1], atol=1e-4)


def test_frozen_parameters_never_change_by_a_bit(small):
    model = randomise(AdaDINO(small), 0.2).train()
    before = {n: p.clone() for n, p in model.encoder.backbone.state_dict().items()}
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=0.1, weight_decay=0.1)
    for _ in range(3):
        output = model(*pair())
        optimizer.zero_grad()
        output.logits.square().mean().backward()
        optimizer.step()
    for name, value in model.encoder.backbone.state_dict().items():
        assert torch.equal(value, before[name]), name
    frozen = set(map(id, model.encoder.backbone.parameters()))
    assert not frozen & {id(p) for p in optimizer.state}
    assert not any(m.training for m in model.encoder.backbone.modules())


def test_bf16_stays_near_fp32(small):
    model = randomise(AdaDINO(small), 0.05).eval()
    before, after = pair()
    expected = model(before, after, k=8).logits.softmax(1)
    got = model.bfloat16()(before, after, k=8).logits
    assert got.dtype == torch.float32
    assert (got.softmax(1) - expected).abs().max() < 0.05
    # The normalisation is exact in any precision.
    assert model.normalize.mean.dtype == torch.float32
    assert model.normalize.mean.flatten().tolist() == pytest.approx([0.430, 0.411, 0.296], abs=1e-7)


def test_autocast_trains(small):
    model = AdaDINO(small).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(*pair())
    output.logits.square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


# --- what people pass to predict ---


def array(height: int = 20, width: int = 30) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_predict_takes_arrays_images_tensors_and_paths(model, tmp_path):
    before, after = array(), array()[::-1].copy()
    expected = model.predict(before, after)
    assert expected.shape == (20, 30)
    assert expected.dtype == np.float32
    assert 0 <= expected.min() <= expected.max() <= 1
    paths = []
    for name, image in (("a.png", before), ("b.png", after)):
        Image.fromarray(image).save(tmp_path / name)
        paths.append(tmp_path / name)
    same = [
        model.predict(*paths),
        model.predict(str(paths[0]), Image.open(paths[1])),
        model.predict(before / np.float32(255), after / 255.0),
        model.predict(torch.from_numpy(before), torch.from_numpy(after).permute(2, 0, 1)),
    ]
    for other in same:
        assert np.allclose(other, expected, atol=1e-5)


def test_predict_leaves_the_mode_alone(model):
    model.train()
    model.predict(array(), array())
    assert model.training


def _nan() -> np.ndarray:
    image = array() / np.float32(255)
    image[3, 4] = np.nan
    return image


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (array(), array(20, 31), r"\(1, 3, 20, 30\) and after \(1, 3, 20, 31\)"),
        (array()[..., :2], array(), r"before has shape \(20, 30, 2\)"),
        (array()[..., 0], array(), "three channels"),
        (array(), array().astype(np.int32), "after is torch.int32"),
        (_nan(), array(), "before holds NaN"),
        (array() * 1.0, array(), "ranges from"),
        (np.zeros((0, 4, 3), np.uint8), array(), "empty"),
        ("nowhere.png", array(), r"cannot read before image nowhere\.png"),
        (array().astype(object), array(), "object"),
    ],
)
def test_wrong_images_are_named(model, before, after, message):
    with pytest.raises(InputError, match=message):
        model.predict(before, after)


def test_a_text_file_is_not_an_image(model, tmp_path):
    path = tmp_path / "a.png"
    path.write_text("hello")
    with pytest.raises(InputError, match="cannot read after image"):
        model.predict(array(), path)


def test_forward_refuses_wrong_tensors(model):
    with pytest.raises(InputError, match="before has shape"):
        model(torch.rand(3, 8, 8), torch.rand(3, 8, 8))
    with pytest.raises(InputError, match="floating point"):
        model(*(torch.zeros(1, 3, 8, 8, dtype=torch.uint8),) * 2)
    with pytest.raises(ConfigError, match="k is 9"):
        model(*pair(), k=9)


# --- what speed and export stand on ---


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_compile_takes_the_forward_pass_whole_for_any_batch(small, mode):
    """fullgraph: one graph, no break, nothing read back by the host."""
    narrow = with_cpgr(with_backbone(small, dim=16, ffn=32, heads=1), width=8)
    model = randomise(AdaDINO(narrow), 0.1)
    model.train(mode == "train")
    graphs = []

    def run_as_traced(graph, _inputs):
        # Tracing only: the export below lowers inference to ATen; here it would triple the time.
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=run_as_traced)
    for batch in (2, 5):
        before, after = pair(batch, 16, 16)
        for image in (before, after):
            torch._dynamo.mark_dynamic(image, 0)
        with torch.set_grad_enabled(mode == "train"):
            got = compiled(before, after)
            assert len(graphs) == 1
            if mode == "train":
                got.logits.mean().backward()
            else:
                assert torch.allclose(got.logits, model(before, after).logits, atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.slow
def test_export_takes_any_batch(model):
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(
        model, pair(2, 32, 32), dynamic_shapes={"before": {0: batch}, "after": {0: batch}}
    )
    for size in (1, 2, 7):
        before, after = pair(size, 32, 32)
        got = program.module()(before, after)
        assert torch.allclose(got.logits, model(before, after).logits, atol=1e-5)


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_runs(name):
    with torch.device("meta"):
        model = AdaDINO(PRESETS[name]).eval()
        image = torch.empty(1, 3, 64, 64)
        assert model(image, image).logits.shape == (1, 2, 64, 64)


def test_width_that_no_head_divides_is_refused():
    with pytest.raises(ConfigError, match=r"cpgr\.width is 20"):
        CPGRConfig(width=20)
