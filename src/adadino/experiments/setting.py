"""What a table is filled in with: data, weights, seeds, and the place of its results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from adadino.errors import ConfigError
from adadino.schema import Bounds


@dataclass(frozen=True)
class Setting:
    """Where the data, the weights and the results are; an annotated field is an option."""

    out: Path = Path("runs/reproduce")
    data: Annotated[Path | None, "Folder with sysu-cd/, whu-cd/, levir-cd/, levir-cd-plus/."] = None
    backbone: Annotated[
        str | None, "ViT-L/16 SAT-493M weights; for a small table, a small backbone's."
    ] = None
    sam: Annotated[str | None, "MobileSAM's weights, for the peers on it: mobile_sam.pt."] = None
    quick: Annotated[bool, "The whole machinery on synthetic tiles, in minutes."] = False
    device: Annotated[str, "Where it runs: auto, cpu, cuda."] = "auto"
    jobs: Annotated[int, "Models to train at a time; small ones do not fill a GPU.", Bounds(1)] = 1
    seeds: tuple[int, ...] = (0,)
    overrides: tuple[str, ...] = ()
    """Changes to the recipe of every row."""

    def __post_init__(self) -> None:
        for option in ("data", "backbone", "sam") if self.quick else ():
            if getattr(self, option) is not None:
                raise ConfigError(
                    f"--{option} does not go with --quick, which makes its own; leave one out."
                )
