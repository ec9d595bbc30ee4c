"""The synthetic world: repeatable pairs, exact masks, and files other tools can read."""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from adadino.data.synthetic import (
    CHANGES,
    HELD_OUT,
    PLANS,
    ImagePair,
    World,
    make_pair,
    write_dataset,
    write_geotiff_pair,
    write_pair,
)
from adadino.data.synthetic import world as synthetic
from adadino.data.synthetic.layout import Layout
from adadino.data.synthetic.plan import Rings
from adadino.data.synthetic.view import draw_views
from adadino.errors import AdaDINOError, ConfigError, InputError

TRAINED_PLANS = ("grid", "organic", "rural")
"""What the bundled model was trained on."""


def digest(pair: ImagePair) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in pair)).hexdigest()


def differing(pair: ImagePair) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray((pair.before != pair.after).any(axis=2))


def test_a_pair_is_two_images_and_a_mask() -> None:
    pair = make_pair(1, 64)
    assert pair.before.shape == pair.after.shape == (64, 64, 3)
    assert pair.before.dtype == pair.after.dtype == np.uint8
    assert pair.mask.shape == (64, 64)
    assert pair.mask.dtype == np.bool_


def test_a_seed_gives_the_same_bytes_again() -> None:
    assert digest(make_pair(7, 96)) == digest(make_pair(7, 96))


def test_a_seed_gives_the_same_bytes_in_another_process() -> None:
    code = (
        "import hashlib; from adadino.data.synthetic import make_pair; "
        "print(hashlib.sha256(b''.join(a.tobytes() for a in make_pair(7, 96))).hexdigest())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == digest(make_pair(7, 96))


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="another platform rounds some pixels otherwise",
)
def test_the_world_that_models_were_trained_on_stays_as_it_was() -> None:
    # A change of these is a change of the bundled model's training set, and of every stored map.
    every = hashlib.sha256()
    for seed in range(24):
        for array in make_pair(seed, 64):
            every.update(array.tobytes())
    assert every.hexdigest() == "b5a35f21aff740db4c0937bfe840d32a5479341fca2b44c0b653fecfc9f52476"
    plans = {plan: digest(make_pair(5, 96, World(plan=plan)))[:16] for plan in TRAINED_PLANS}
    assert plans == {
        "grid": "191eeb78a06776c5",
        "organic": "ee4891f22022277c",
        "rural": "87c684f5e377cae7",
    }


def test_no_default_seed_draws_what_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plans, droughts = set(), set()

    def lay_out(rng: Any, scene: Any, plan: Any, wishes: Any) -> Layout:
        plans.add(next(name for name in PLANS if PLANS[name] is plan))
        return Layout(rng, scene, plan, wishes)

    def look(*arguments: Any) -> Any:
        views = draw_views(*arguments)
        droughts.update(view.drought for view in views)
        return views

    monkeypatch.setattr(synthetic, "Layout", lay_out)
    monkeypatch.setattr(synthetic, "draw_views", look)
    for seed in range(64):
        make_pair(seed, 16)
    assert plans == set(TRAINED_PLANS)
    assert droughts == {0.0}
    plans.clear()
    droughts.clear()
    make_pair(0, 16, HELD_OUT)
    assert plans.isdisjoint(TRAINED_PLANS)
    assert min(droughts) > 0.3


def test_a_drought_parches_what_grows_and_moves_no_mask() -> None:
    for seed in range(3):
        wet = make_pair(seed, 96, World(plan="organic", nuisance=0, shadows=False))
        dry = make_pair(
            seed, 96, World(plan="organic", nuisance=0, shadows=False, season="drought")
        )
        np.testing.assert_array_equal(wet.mask, dry.mask)
        assert not (differing(dry) & ~dry.mask).any()
        red, green, _ = dry.before.astype(float).mean((0, 1))
        assert red / green > wet.before[..., 0].mean() / wet.before[..., 1].mean()


def test_streets_of_a_radial_town_are_rings_and_spokes_around_a_square() -> None:
    plan, reach = PLANS["radial"], 400.0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        frame = Rings(rng, np.array((150.0, 100.0)), plan, reach)
        _, cuts = frame.split(rng, plan, reach)
        lines = [frame.path(line[:2], line[2:]) for line, _ in cuts]
        rings = [line for line in lines if np.allclose(line[0], line[-1])]
        spokes = [line for line in lines if not np.allclose(line[0], line[-1])]
        centre = rings[0][:-1].mean(0)
        radii = []
        for ring in rings:
            away = np.hypot(*(ring - centre).T)
            np.testing.assert_allclose(away, away[0], rtol=1e-6)
            radii.append(away[0])
        assert 15 < min(radii) < 30  # the square
        assert max(radii) > reach - 1.1 * plan.block
        for spoke in spokes:
            (x, y), (dx, dy) = spoke[0] - centre, spoke[-1] - spoke[0]
            assert abs(x * dy - y * dx) < 1e-6 * np.hypot(x, y) * np.hypot(dx, dy)
        assert len(spokes) > len(rings) > 3


def test_torch_and_rasterio_are_not_imported() -> None:
    code = (
        "import sys; from adadino.data.synthetic import make_pair; make_pair(0, 32); "
        "print([name for name in ('torch', 'rasterio', 'scipy') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_seeds_give_different_places() -> None:
    assert len({make_pair(seed, 48).before.tobytes() for seed in range(12)}) == 12


@pytest.mark.parametrize("size", [(1, 1), (7, 200), (32, 32), (300, 517)])
def test_any_size_works(size: tuple[int, int]) -> None:
    pair = make_pair(5, size)
    assert pair.before.shape == pair.after.shape == (*size, 3)
    assert pair.mask.shape == size


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**40),
    plan=st.sampled_from(sorted(PLANS)),
    gsd=st.sampled_from([0.2, 0.5, 1.0, 3.0]),
)
def test_outside_the_mask_nothing_differs(seed: int, plan: str, gsd: float) -> None:
    pair = make_pair(seed, (80, 112), World(plan=plan, gsd=gsd, nuisance=0, shadows=False))
    assert not (differing(pair) & ~pair.mask).any()


@pytest.mark.parametrize("plan", PLANS)
def test_outside_the_mask_only_shadows_differ(plan: str) -> None:
    for seed in range(4):
        lit = make_pair(seed, 128, World(plan=plan, nuisance=0, shadows=False))
        pair = make_pair(seed, 128, World(plan=plan, nuisance=0))
        in_shadow = (lit.before != pair.before).any(2) | (lit.after != pair.after).any(2)
        assert in_shadow.any()
        assert not (differing(pair) & ~pair.mask & ~in_shadow).any()


@pytest.mark.parametrize("plan", PLANS)
def test_inside_the_mask_nearly_everything_differs(plan: str) -> None:
    for seed in range(4):
        pair = make_pair(seed, 128, World(plan=plan, nuisance=0, empty=0))
        assert pair.mask.any()
        assert differing(pair)[pair.mask].mean() > 0.97


def test_nuisances_change_the_images_and_not_the_mask() -> None:
    for seed in range(6):
        clean = make_pair(seed, 96, World(nuisance=0))
        noisy = make_pair(seed, 96, World(nuisance=1))
        np.testing.assert_array_equal(clean.mask, noisy.mask)
        assert differing(noisy).mean() > 0.9
        assert (clean.before != noisy.before).any(2).mean() > 0.9


def test_more_nuisance_means_a_larger_difference_where_nothing_changed() -> None:
    def gap(nuisance: float) -> float:
        pairs = [make_pair(seed, 96, World(nuisance=nuisance)) for seed in range(8)]
        return float(
            np.mean([np.abs(np.int16(p.before) - np.int16(p.after))[~p.mask].mean() for p in pairs])
        )

    assert gap(0) < gap(0.5) < gap(1) < gap(2)


def test_the_share_of_change_is_plausible() -> None:
    shares = np.array([make_pair(seed, 128).mask.mean() for seed in range(60)])
    assert 0.03 < shares.mean() < 0.2
    assert shares.max() < 0.8


def test_empty_sets_how_many_pairs_have_no_change() -> None:
    assert not any(make_pair(seed, 64, World(empty=1)).mask.any() for seed in range(10))
    changed = [make_pair(seed, 128, World(empty=0)).mask.any() for seed in range(30)]
    assert np.mean(changed) > 0.95


@pytest.mark.parametrize("kind", CHANGES)
def test_each_kind_of_change_happens_alone(kind: str) -> None:
    world = World(changes=(kind,), empty=0, nuisance=0, shadows=False)
    pairs = [make_pair(seed, 128, world) for seed in range(5)]
    assert np.mean([pair.mask.any() for pair in pairs]) > 0.7


def test_no_kind_of_change_means_no_change() -> None:
    assert not any(make_pair(seed, 64, World(changes=())).mask.any() for seed in range(5))


def test_flooded_land_has_the_colour_of_water() -> None:
    world = World(changes=("flooded",), empty=0, nuisance=0, shadows=False)
    pair = next(p for p in (make_pair(s, 128, world) for s in range(9)) if p.mask.mean() > 0.02)
    # Erode by hand: edge pixels are mixed with the shore.
    inner = pair.mask.copy()
    for axis in (0, 1):
        inner &= np.roll(pair.mask, 1, axis) & np.roll(pair.mask, -1, axis)
    red, green, blue = np.median(pair.after[inner], axis=0)
    assert blue > red
    assert green > red
    assert pair.after[inner].std(axis=0).max() < 12


def test_the_two_building_changes_mirror_each_other() -> None:
    world = World(empty=0, nuisance=0, shadows=False, plan="organic")
    built = make_pair(3, 128, replace(world, changes=("built",)))
    gone = make_pair(3, 128, replace(world, changes=("demolished",)))
    assert built.mask.any()
    np.testing.assert_array_equal(built.mask, gone.mask)
    np.testing.assert_array_equal(built.before, gone.after)
    np.testing.assert_array_equal(built.after, gone.before)


def test_plans_are_different_places() -> None:
    pairs = [
        make_pair(4, 128, World(plan=plan, nuisance=0)) for plan in ("grid", "organic", "rural")
    ]
    grid, organic, rural = (pair.before.astype(float).mean((0, 1)) for pair in pairs)
    for one, other in ((grid, organic), (organic, rural), (grid, rural)):
        assert np.abs(one - other).max() > 3


def test_without_a_plan_the_seeds_choose_all_of_them() -> None:
    # Cities are grey and fields are not: the free world holds both.
    def green(plan: str | None) -> list[float]:
        images = [make_pair(s, 64, World(plan=plan, nuisance=0)).before for s in range(24)]
        return [float((np.int16(i[..., 1]) - i[..., 2]).mean()) for i in images]

    free = green(None)
    assert min(free) < np.median(green("grid"))
    assert max(free) > np.median(green("rural"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"plan": "medieval"},
        {"season": "spring"},
        {"changes": ("built", "burnt")},
        {"gsd": 0.0},
        {"empty": 1.5},
        {"nuisance": -1.0},
        {"buildings": float("nan")},
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        World(**wrong)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InputError, match="size"):
        make_pair(0, 0)
    with pytest.raises(InputError, match="seed"):
        make_pair(-1)


def test_write_pair_stores_exactly_the_pair(tmp_path: Path) -> None:
    before, after, label = write_pair(tmp_path, 9, (40, 56), name="here")
    assert [p.relative_to(tmp_path).as_posix() for p in (before, after, label)] == [
        "A/here.png", "B/here.png", "label/here.png",
    ]  # fmt: skip
    pair = make_pair(9, (40, 56))
    np.testing.assert_array_equal(np.asarray(Image.open(before)), pair.before)
    np.testing.assert_array_equal(np.asarray(Image.open(after)), pair.after)
    np.testing.assert_array_equal(np.asarray(Image.open(label)), pair.mask * np.uint8(255))


def test_a_dataset_has_the_standard_layout_and_disjoint_splits(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    splits = {"train": 3, "val": 2, "test": 2}
    labels = write_dataset(
        tmp_path, splits, size=32, progress=lambda done, total: calls.append((done, total))
    )
    assert calls == [(i, 7) for i in range(1, 8)]
    assert len(labels) == len({path.stem for path in labels}) == 7
    for split, count in splits.items():
        for folder in ("A", "B", "label"):
            assert len(list((tmp_path / split / folder).iterdir())) == count
    images = {path.read_bytes() for path in tmp_path.glob("*/A/*.png")}
    assert len(images) == 7


def test_a_pair_of_a_dataset_is_repeated_by_its_name(tmp_path: Path) -> None:
    labels = write_dataset(tmp_path, {"train": 1, "val": 2}, seed=3, size=32)
    for label in labels:
        mask = make_pair(int(label.stem), 32).mask
        np.testing.assert_array_equal(np.asarray(Image.open(label)) > 0, mask)


def test_a_split_stays_when_another_grows(tmp_path: Path) -> None:
    small = write_dataset(tmp_path / "small", {"train": 1, "val": 2}, size=32)
    large = write_dataset(tmp_path / "large", {"train": 4, "val": 2}, size=32)
    assert [p.name for p in small[-2:]] == [p.name for p in large[-2:]]


def test_a_split_does_not_depend_on_which_others_are_asked_for(tmp_path: Path) -> None:
    every = write_dataset(tmp_path / "every", {"train": 1, "val": 1, "test": 2}, size=32)
    assert [p.stem for p in every] == ["00000000", "01000000", "02000000", "02000001"]
    alone = write_dataset(tmp_path / "alone", {"test": 2}, size=32)
    for one, other in zip(alone, every[2:], strict=True):
        assert one.name == other.name
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("splits", [{}, {"train": 0}, {"train": -1}, {"train": 1, "more": 1}])
def test_impossible_splits_are_named(tmp_path: Path, splits: dict[str, int]) -> None:
    with pytest.raises(InputError, match=re.escape(f"splits is {splits}; give each of train, val")):
        write_dataset(tmp_path, splits, size=32)
    assert not list(tmp_path.iterdir())


def test_geotiffs_hold_the_pair_in_its_place(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    world = World(gsd=0.25)
    files = write_geotiff_pair(
        tmp_path, 2, (48, 300), world, crs="EPSG:25832", origin=(400_000.0, 5_600_000.0)
    )
    assert [path.name for path in files] == ["before.tif", "after.tif", "truth.tif"]
    pair = make_pair(2, (48, 300), world)
    for path, array in zip(files, pair, strict=True):
        with rasterio.open(path) as raster:
            assert raster.crs.to_epsg() == 25832
            assert raster.transform.to_gdal() == (400_000.0, 0.25, 0.0, 5_600_000.0, 0.0, -0.25)
            assert set(raster.dtypes) == {"uint8"}
            values = np.moveaxis(raster.read(), 0, 2)
            np.testing.assert_array_equal(values, np.atleast_3d(array))
    with rasterio.open(files[0]) as raster:
        assert [band.name for band in raster.colorinterp] == ["red", "green", "blue"]
        assert raster.profile["tiled"]
        assert raster.profile["compress"] == "deflate"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(p.name for p in files)


def test_an_unknown_crs_is_named(tmp_path: Path) -> None:
    pytest.importorskip("rasterio")
    with pytest.raises(InputError, match="EPSG:0"):
        write_geotiff_pair(tmp_path, 0, 16, crs="EPSG:0")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("without_rasterio")
def test_without_rasterio_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(AdaDINOError, match=r"pip install adadino\[geo\]"):
        write_geotiff_pair(tmp_path, 0, 16)
