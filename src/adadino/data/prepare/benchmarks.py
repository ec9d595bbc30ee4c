"""What each benchmark must come out as: its variants, their counts, and the rules for its splits.

The counts are the paper's, in tiles of 256, and those of the datasets' own papers where the paper
is silent. A folder that gives other counts is another dataset, and its scores are not comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from adadino.config import ClassesConfig
from adadino.data.classes import SECOND
from adadino.data.folder import CLASS_ROLES
from adadino.errors import ConfigError


@dataclass(frozen=True)
class Variant:
    """One of the versions in which a benchmark circulates."""

    expected: Mapping[str, int] | None = None
    """Tiles in each split; None if nothing is known to compare with."""
    padded: bool = False
    """Whether edges are filled up to whole tiles; otherwise they are dropped."""
    hold_out: bool = False
    """Whether to take a validation split out of the training split if there is none."""
    shipped: bool = False
    """Whether it is the authors' own division into train and test, which cannot be drawn."""


@dataclass(frozen=True)
class Benchmark:
    """How a dataset is split and what it must count; the first variant is the default."""

    variants: Mapping[str, Variant] = field(default_factory=lambda: {"standard": Variant()})
    tile: int = 256
    """The tile size for which the expected counts hold."""
    shares: tuple[int, int] | None = None
    """Tenths of train and val where no split is shipped, the rest being test; None: an error."""
    split_tiles: bool = False
    """Whether tiles, not scenes, are drawn: for a benchmark that is one scene."""
    single_name: str | None = None
    """What to call a scene whose three files have different names."""
    resolution: tuple[float, float] | None = None
    """Its finest and coarsest pixels, in metres on the ground."""
    labels: tuple[str, ...] = ("label",)
    """The folders of its labels."""
    classes: ClassesConfig | None = None
    """The classes of both dates, if it has them and they are always the same."""
    codes: bool = False
    """Whether its labels are from-to codes, which a `classes.json` explains."""


def _standard(train: int, val: int, test: int) -> Mapping[str, Variant]:
    return {"standard": Variant(expected={"train": train, "val": val, "test": test})}


BENCHMARKS: Mapping[str, Benchmark] = {
    # 445 / 64 / 128 scenes of 1024 x 1024.
    "levir-cd": Benchmark(_standard(7120, 1024, 2048), resolution=(0.5, 0.5)),
    # 637 / 348 scenes of 1024 x 1024. The paper's 10,192 is train and val together; it does not
    # say how it validated, so we hold scenes out, never tiles of scenes that are trained on.
    "levir-cd-plus": Benchmark(
        {
            "holdout": Variant({"train": 9680, "val": 512, "test": 5568}, hold_out=True),
            "whole": Variant({"train": 10192, "test": 5568}),
        },
        resolution=(0.5, 0.5),
    ),
    # One scene of 32507 x 15354: 127 x 60 tiles with padded edges, 126 x 59 without. Both
    # circulate; the paper's counts are the padded ones. `official` is the authors' own division
    # into a training and a test mosaic, which the paper does not use.
    "whu-cd": Benchmark(
        {
            "padded": Variant({"train": 6096, "val": 762, "test": 762}, padded=True),
            "floored": Variant({"train": 5947, "val": 743, "test": 744}),
            "official": Variant(hold_out=True, shipped=True),
        },
        shares=(8, 1),
        split_tiles=True,
        single_name="whu",
        resolution=(0.2, 0.2),
    ),
    "sysu-cd": Benchmark(_standard(12000, 4000, 4000), resolution=(0.5, 0.5)),
    # 360 / 120 / 120 scenes of 512 x 512.
    "clcd": Benchmark(_standard(1440, 480, 480), resolution=(0.5, 2.0)),
    # 2968 / 1694 scenes of 512 x 512, and no validation split: 148 scenes are held out.
    "second": Benchmark(
        {
            "holdout": Variant({"train": 11280, "val": 592, "test": 6776}, hold_out=True),
            "whole": Variant({"train": 11872, "test": 6776}),
        },
        labels=CLASS_ROLES,
        classes=SECOND,
    ),
    "from-to": Benchmark(shares=(7, 1), codes=True),
    "folder": Benchmark(shares=(7, 1)),
}


def lookup(name: str, variant: str | None) -> tuple[Benchmark, str]:
    """Return the benchmark and the variant's name, the default one for None.

    Raises:
        ConfigError: If there is no such benchmark or variant.
    """
    if name not in BENCHMARKS:
        raise ConfigError(f"there is no benchmark {name!r}. Choose one of {', '.join(BENCHMARKS)}.")
    benchmark = BENCHMARKS[name]
    if variant is None:
        return benchmark, next(iter(benchmark.variants))
    if variant not in benchmark.variants:
        choices = ", ".join(benchmark.variants)
        raise ConfigError(f"{name} has no variant {variant!r}. Choose one of {choices}.")
    return benchmark, variant
