"""Splits that a source does not come with, drawn by name, the same way on every machine.

Scenes are drawn, never tiles of one scene into two splits, where there is more than one scene. The
exception is WHU-CD, which is one scene, and whose published split is random over its tiles.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from adadino.data.prepare.benchmarks import Benchmark
from adadino.data.prepare.cutting import SceneTiles, Tile
from adadino.errors import DataError

HOLD_OUT_SHARE = 0.05


def draw_missing_splits(
    plans: Sequence[SceneTiles], benchmark: Benchmark, variant: str, seed: int
) -> tuple[list[SceneTiles], list[str]]:
    """Give every tile a split.

    Args:
        plans: Scenes and tiles, with the splits that the source came with.
        benchmark: Says whether and how splits may be drawn.
        variant: Says whether a validation split is held out where there is none.
        seed: Chooses among the possible draws.

    Returns:
        The plans with every split filled in, and notes for the manifest.

    Raises:
        DataError: If the benchmark or the variant has an official split that the source does not
            show, the source shows one that the variant is not, or there are too few scenes to
            draw from.
    """
    shipped = {tile.split for plan in plans for tile in plan.tiles}
    _check_division(shipped, benchmark, variant)
    open_to_draw = None if None in shipped else "train"

    def unit(plan: SceneTiles, tile: Tile) -> str:
        return tile.name if benchmark.split_tiles else plan.scene.name

    units = {
        unit(plan, tile) for plan in plans for tile in plan.tiles if tile.split == open_to_draw
    }
    drawn, notes = _draw(units, shipped, benchmark, variant, seed)

    def with_split(plan: SceneTiles, tile: Tile) -> Tile:
        if tile.split != open_to_draw:
            return tile
        return tile._replace(split=drawn.get(unit(plan, tile), tile.split))

    filled = [
        plan._replace(tiles=[with_split(plan, tile) for tile in plan.tiles]) for plan in plans
    ]
    return filled, notes


def _check_division(shipped: set[str | None], benchmark: Benchmark, variant: str) -> None:
    """Compare the authors' own division, where there is one, with what the source shows."""
    own = {name for name, one in benchmark.variants.items() if one.shipped}
    if variant in own and shipped != {"train", "test"}:
        others = ", ".join(name for name in benchmark.variants if name not in own)
        found = ", ".join(sorted(split for split in shipped if split)) or "no splits at all"
        raise DataError(
            f"variant {variant} is the authors' own division into train and test, but the source "
            f"shows {found}. Looked for 2012/whole_image/{{train,test}}, 2016/whole_image/{{train,"
            "test} and change_label/{train,test}, or for train and test folders and no others. "
            f"Download the authors' archive, or choose another variant ({others})."
        )
    if own and variant not in own and shipped == {"train", "test"}:
        # Two mosaics have other edges than the whole image, so their tiles are not the variant's.
        raise DataError(
            f"the source shows the authors' own division into train and test, but variant {variant}"
            " is cut from the whole image and drawn anew. Choose the variant for it (--variant "
            f"{min(own)}), or give the whole images in A, B and label."
        )


def _draw(
    units: set[str], shipped: set[str | None], benchmark: Benchmark, variant: str, seed: int
) -> tuple[dict[str, str], list[str]]:
    """The splits of those units that change theirs, and notes for the manifest."""
    kind = "tiles" if benchmark.split_tiles else "scenes"
    if None in shipped:
        if benchmark.shares is None:
            raise DataError(
                "the source shows no train, val and test folders or lists, and this benchmark has "
                "an official split. Download the original, or use `folder` for a random split."
            )
        train, val = benchmark.shares
        shares = f"{train}0/{val}0/{10 - train - val}0 %"
        note = f"the source has no splits: {shares} of its {kind} drawn with seed {seed}"
        return _draw_splits(units, benchmark.shares, seed), [note]
    if "val" in shipped:
        return {}, []
    if not benchmark.variants[variant].hold_out:
        return {}, ["there is no validation split"]
    drawn = _draw_hold_out(units, seed)
    note = (
        f"the source has no validation split: {len(drawn)} of {len(units)} training {kind} held "
        f"out with seed {seed}"
    )
    return drawn, [note]


def _draw_splits(names: Iterable[str], shares: tuple[int, int], seed: int) -> dict[str, str]:
    order = ranked(names, seed)
    count = len(order)
    if count < 3:
        raise DataError(
            f"{count} scenes without split folders cannot be divided into train, val and test. "
            "Add scenes, or put them into split folders yourself."
        )
    train = count * shares[0] // 10
    val = max(1, count * shares[1] // 10)
    train = min(train, count - val - 1)
    return {
        name: "train" if rank < train else "val" if rank < train + val else "test"
        for rank, name in enumerate(order)
    }


def _draw_hold_out(names: Iterable[str], seed: int) -> dict[str, str]:
    order = ranked(names, seed)
    if len(order) < 2:
        raise DataError(
            f"{len(order)} training scenes are too few to hold one out for validation. Add "
            "scenes, or choose a variant that holds none out."
        )
    return dict.fromkeys(order[: max(1, round(HOLD_OUT_SHARE * len(order)))], "val")


def ranked(names: Iterable[str], seed: int) -> list[str]:
    """Names in an order that a seed draws, the same on every machine."""
    # A digest, not a random generator: no library's next release can change the split.
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
