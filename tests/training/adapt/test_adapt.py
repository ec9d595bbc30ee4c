"""Adapting: what is frozen, what is held out, what is kept, and what is refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from PIL import Image

from adadino.checkpoint import load, save
from adadino.config import StreamConfig
from adadino.data.synthetic import make_pair
from adadino.domain import Domain
from adadino.errors import ConfigError, DataError, WriteError
from adadino.metrics import Confusion
from adadino.model.adadino import AdaDINO
from adadino.training.adapt import run as running
from adadino.training.adapt.compare import Comparison, best_look, compare, held_out
from adadino.training.adapt.features import Frozen, Store, View, trained_parameters, views_of
from adadino.training.adapt.fit import count, fit
from adadino.training.adapt.options import AdaptOptions
from adadino.training.adapt.run import adapt, synthetic
from adadino.training.adapt.tiles import Tile, divide, read_tiles
from tests.conftest import SMALL, randomise

SIDE = 64
FAST = AdaptOptions(steps=6, every=2, replay=1, views=8, folds=4, lr=1e-3)


def model(stream: bool = False) -> AdaDINO:
    torch.manual_seed(0)
    config = dataclasses.replace(SMALL, order_invariant=True)
    if stream:
        config = dataclasses.replace(config, stream=StreamConfig(name="lite0"))
    return randomise(AdaDINO(config), 0.2).eval()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save(model(), tmp_path_factory.mktemp("base") / "base", with_backbone=True)


def write_tile(root, name, pair, known=None):
    images = {"A": pair.before, "B": pair.after, "label": (pair.mask != 0) * np.uint8(255)}
    images |= {} if known is None else {"known": known * np.uint8(255)}
    for role, image in images.items():
        (root / role).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / role / f"{name}.png")


@pytest.fixture
def data(tmp_path):
    for index in range(5):
        write_tile(tmp_path / "data", f"s{index}", make_pair(40 + index, SIDE))
    return tmp_path / "data"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("part", ["decoder", "adapters"])
def test_what_is_kept_gives_the_models_own_answer(tmp_path, part, stream):
    network, tiles = model(stream), synthetic(5, 3, (SIDE, SIDE))
    frozen = Frozen(network, part, tiles)
    store = Store(tmp_path, frozen)
    views = [View(tiles[0], 0), View(tiles[1], 5), View(tiles[2], 3)]
    dates = [
        torch.stack([v.show(getattr(v.tile, name)) for v in views]).float() / 255
        for name in ("before", "after")
    ]
    with torch.no_grad():
        whole = network(*dates, chunks=frozen.chunks)
        ours = frozen.forward(network, [store[view] for view in views], (SIDE, SIDE))
    assert torch.allclose(ours.logits, whole.logits, atol=2e-5)
    assert torch.allclose(ours.responses.delta, whole.responses.delta, atol=1e-5)
    for mine, theirs in zip(ours.pyramid, whole.pyramid, strict=True):
        assert torch.allclose(mine, theirs, atol=2e-5)


def test_the_chunks_are_those_of_a_scene(tmp_path):
    network, tiles = model(), synthetic(5, 3, (SIDE, SIDE))
    dates = [torch.stack([getattr(t, n) for t in tiles]).float() / 255 for n in ("before", "after")]
    with torch.no_grad():
        scores = network(*dates).scores.mean(0)
    expected = scores.topk(SMALL.bscs.k, dim=1).indices.sort(dim=1).values
    assert torch.equal(Frozen(network, "decoder", tiles).chunks, expected)


@pytest.mark.parametrize("part", ["decoder", "adapters", "both"])
def test_only_what_is_asked_for_moves(tmp_path, part):
    network, tiles = model(stream=True), synthetic(5, 4, (SIDE, SIDE))
    store = Store(tmp_path, Frozen(network, part, tiles))
    new = fit(network, store, list(views_of(tiles, 8)), [], FAST, seed=0, steps=2).model
    trained = {id(p) for p in trained_parameters(new, part)}
    moved, before = set(), dict(network.named_parameters())
    for name, parameter in new.named_parameters():
        same = torch.equal(parameter, before[name])
        assert same or id(parameter) in trained, name
        if not same:
            moved.add(name.split(".")[0])
    wanted = {"decoder": {"neck", "decoder"}, "adapters": {"encoder"}, "both": {"encoder", "neck"}}
    assert wanted[part] <= moved
    for name, buffer in new.named_buffers():
        assert torch.equal(buffer, dict(network.named_buffers())[name]), name


def test_equal_tiles_and_seeds_give_equal_weights(tmp_path):
    network, tiles = model(), synthetic(5, 4, (SIDE, SIDE))
    store = Store(tmp_path, Frozen(network, "decoder", tiles))
    views = list(views_of(tiles, 8))
    one, two, other = (
        fit(network, store, views, [], FAST, seed=seed, steps=3).model.state_dict()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_the_new_model_lies_halfway(tmp_path):
    network, tiles = model(), synthetic(5, 4, (SIDE, SIDE))
    store = Store(tmp_path, Frozen(network, "decoder", tiles))
    views = list(views_of(tiles, 8))
    whole, half = (
        fit(network, store, views, [], dataclasses.replace(FAST, way=way), seed=1, watch=tiles)
        for way in (1.0, 0.5)
    )
    parts = (each.parameters() for each in (network, whole.model, half.model))
    states = zip(*parts, strict=True)
    for start, end, middle in states:
        assert torch.allclose(middle, (start + end) / 2, atol=1e-6)
    assert np.array_equal(half.looks[0], count(network, store, tiles))
    assert np.array_equal(half.looks[FAST.steps], count(half.model, store, tiles))


def test_what_is_unknown_teaches_nothing(tmp_path):
    network, tiles = model(), synthetic(5, 2, (SIDE, SIDE))
    store = Store(tmp_path, Frozen(network, "decoder", tiles))
    known = torch.ones(SIDE, SIDE, dtype=torch.bool)
    known[:, :32] = False
    lies = torch.rand(SIDE, SIDE, generator=torch.Generator().manual_seed(0)) > 0.5

    def trained(label):
        views = [View(dataclasses.replace(t, known=known, label=label(t)), 0) for t in tiles]
        return fit(network, store, views, [], FAST, seed=0, steps=1).model

    honest = trained(lambda tile: tile.label)
    shuffled = trained(lambda tile: torch.where(known, tile.label, lies))
    for mine, theirs in zip(honest.parameters(), shuffled.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-7)
    counts = count(network, store, [dataclasses.replace(tiles[0], known=known, label=lies)])
    assert counts.sum() == SIDE * 32


def tile(name, scene="a", place=(0, 0), changed=True):
    label = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    label[:5] = changed
    image = torch.zeros(3, SIDE, SIDE, dtype=torch.uint8)
    return Tile(name, scene, place, image, image, label, torch.ones_like(label))


def test_scenes_are_held_out_whole():
    tiles = [tile(f"{s}{i}", scene=s, place=(0, SIDE * i)) for s in "abcde" for i in range(3)]
    parts = divide(tiles, 3)
    assert sorted(n for part in parts for n in part) == list(range(15))
    assert len(parts) == 3
    for scene in "abcde":
        assert sum(any(tiles[n].scene == scene for n in part) for part in parts) == 1


def test_blocks_of_one_scene_are_held_out_and_overlapping_tiles_stay_together():
    tiles = [tile(f"t{i}", place=(0, SIDE * i)) for i in range(8)]
    assert divide(tiles, 4) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    tiles.append(tile("moved in", place=(0, 7 * SIDE - 20)))  # over the last two
    parts = divide(tiles, 4)
    assert any({6, 7, 8} <= set(part) for part in parts)
    with pytest.raises(DataError, match="all 4 tiles overlap"):
        divide([tile(f"t{i}", place=(0, i)) for i in range(4)], 4)


def test_equal_models_are_not_better_and_better_ones_are():
    rng = np.random.default_rng(0)
    old = rng.integers(50, 100, (16, 4))
    same = compare(old, old)
    assert (same.difference, same.low, same.high, same.better) == (0, 0, 0, False)
    new = old + np.array([40, -40, -40, 40])
    assert compare(old, new).better
    assert not compare(new, old).better
    noise = old.copy()
    noise[0] = [500, 0, 0, 0]  # one lucky tile is no proof
    assert not compare(old, noise).better


def test_better_is_a_question_with_one_side():
    scores = Confusion(1, 1, 1, 1)
    assert Comparison(scores, scores, 0.03, low=-0.001, high=0.06, chance=0.96).better
    assert not Comparison(scores, scores, 0.03, low=-0.004, high=0.06, chance=0.94).better
    old = np.tile([50, 50, 50, 850], (14, 1))
    found = compare(old, old + np.array([[8, 0, -8, 0]] * 9 + [[-7, 0, 7, 0]] * 5))
    assert 0.85 < found.chance < 0.95  # better in 9 tiles of 14
    assert not found.better


def looks(**by_step):
    return {int(step[1:]): np.array([counts]) for step, counts in by_step.items()}


def test_the_number_of_updates_is_that_of_all_folds_together():
    lucky = looks(s0=[5, 5, 5, 0], s2=[4, 5, 6, 0])
    large = looks(s0=[10, 20, 20, 0], s2=[30, 5, 5, 0])
    assert best_look([lucky, large]) == 2
    assert best_look([lucky, looks(s0=[10, 20, 20, 0], s2=[10, 20, 20, 0])]) == 0


def test_a_fold_does_not_choose_when_it_is_scored():
    folds = [looks(s0=[1, 9, 9, 0], s2=[3, 7, 7, 0], s4=[9, 1, 1, 0]) for _ in range(3)]
    folds[0] = looks(s0=[1, 9, 9, 0], s2=[9, 1, 1, 0], s4=[2, 8, 8, 0])  # best at 2 by itself
    old, new = held_out(folds)
    assert old.tolist() == [[1, 9, 9, 0]] * 3
    assert new[0].tolist() == [2, 8, 8, 0]  # scored where the others were best


@pytest.mark.slow
def test_an_adaptation_writes_a_model_with_its_ancestors(base, data, tmp_path):
    options = dataclasses.replace(FAST, anyway=True, steps=2, every=1)
    said = []
    found = adapt(str(base), data, tmp_path / "mine", options, progress=lambda *a: said.append(a))
    assert found.kept == "new"
    new = load(tmp_path / "mine")
    assert new.ancestors[-1]["model"] == str(base)
    assert new.domain == Domain(None, {})  # neither the base nor the tiles say it
    report = json.loads((tmp_path / "mine" / "report.json").read_text())
    assert report["tiles"] == 5
    assert report["held_out"]["old"]["f1"] == pytest.approx(found.comparison.old.f1)
    assert "left" in said[-1][2]
    assert said[-1][0] == said[-1][1]
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    with pytest.raises(WriteError, match="holds a model"):
        adapt(str(base), data, tmp_path / "mine", options)


def test_a_base_s_range_grows_by_what_the_tiles_say(base, data):
    tiles, network = read_tiles(data), load(base)
    network.domain = Domain((0.5, 2.0), {"brightness": (0.2, 0.7)})
    assert running._domain(network, data, tiles, FAST) == network.domain
    (data / "manifest.json").write_text('{"resolution_m": 10}')
    assert running._domain(network, data, tiles, FAST).resolution == (0.5, 10)
    said = dataclasses.replace(FAST, resolution=0.3)
    assert running._domain(network, data, tiles, said).resolution == (0.3, 2.0)
    network.domain = None
    assert running._domain(network, data, tiles, said).resolution == (0.3, 0.3)
    with pytest.raises(ConfigError, match="resolution is 0"):
        AdaptOptions(resolution=0)


def test_a_model_that_is_not_better_is_not_written(base, data, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "compare", lambda old, new, seed: compare(old, old))
    found = adapt(str(base), data, tmp_path / "mine", dataclasses.replace(FAST, steps=1))
    assert (found.kept, found.model) == ("old", None)
    assert "The old one is kept" in found.sentence
    assert not (tmp_path / "mine" / "model.safetensors").exists()
    assert "kept" in (tmp_path / "mine" / "report.md").read_text()


@pytest.mark.slow
def test_a_killed_adaptation_goes_on_to_the_same_weights(base, data, tmp_path):
    options = dataclasses.replace(FAST, anyway=True, steps=2, every=1)
    adapt(str(base), data, tmp_path / "whole", options)

    def kill(done, total, message):
        if done == total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adapt(str(base), data, tmp_path / "again", options, progress=kill)
    assert not (tmp_path / "again").exists()
    adapt(str(base), data, tmp_path / "again", options)
    one, two = (load(tmp_path / name).state_dict() for name in ("whole", "again"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_known_masks_are_read(tmp_path):
    known = np.ones((SIDE, SIDE), bool)
    known[:9] = False
    for index in range(4):
        write_tile(tmp_path, f"m_r0_c{SIDE * index}", make_pair(40 + index, SIDE), known)
    tiles = read_tiles(tmp_path)
    assert np.array_equal(tiles[0].known.numpy(), known)
    assert sorted(t.place for t in tiles) == [(0, SIDE * index) for index in range(4)]
    assert {t.scene for t in tiles} == {"m"}


def test_tiles_that_teach_nothing_are_refused(tmp_path):
    for index in range(3):
        write_tile(tmp_path / "few", f"s{index}", make_pair(40 + index, SIDE))
    with pytest.raises(DataError, match="has 3 tiles; at least 4"):
        read_tiles(tmp_path / "few")
    for index in range(4):
        pair = make_pair(40 + index, SIDE)
        write_tile(tmp_path / "one", f"s{index}", pair._replace(mask=pair.mask * 0))
    with pytest.raises(DataError, match="one class only, no change"):
        read_tiles(tmp_path / "one")
    for index in range(4):
        pair = make_pair(40 + index % 3, SIDE)
        pair = pair._replace(mask=(pair.mask == 0) * np.uint8(255)) if index == 3 else pair
        write_tile(tmp_path / "lies", f"s{index}", pair)
    with pytest.raises(DataError, match=r"s0 and s3 of .* different labels"):
        read_tiles(tmp_path / "lies")


def test_more_is_trained_where_there_are_more_labels():
    with pytest.raises(ConfigError, match="folds is 1"):
        AdaptOptions(folds=1)
    assert AdaptOptions().trained(16) == "decoder"
    assert AdaptOptions().trained(64) == "both"
