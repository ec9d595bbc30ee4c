"""A plan against the run it plans: seconds, bytes and polygons.

    python benchmarks/area_plan.py

A first region gives the rate and the likeness, as `--rate` and `--like` do; a second one, four
times as large, is planned with them and then run. Seconds are those of the processor, so that other
work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from adadino.area import predict_area
from adadino.area.cost import estimate, read_likeness
from adadino.area.units import Dates, cut, open_scenes
from adadino.data.synthetic import write_geotiff_pair
from adadino.scene import SceneOptions

OPTIONS = SceneOptions(readers=1)


def main() -> None:
    parser = argparse.ArgumentParser(description="A plan against the run it plans.")
    parser.add_argument("--side", type=int, default=768, help="of the first region in pixels")
    parser.add_argument("--unit", type=int, default=512)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        regions = [
            make(folder / "one", 3, given.side),
            make(folder / "two", 4, 2 * given.side),
        ]
        run(regions[0], folder / "warm", given.unit)  # what is loaded once is no part of a rate
        seconds = run(regions[0], folder / "first", given.unit)
        tiles = plan(regions[0], given.unit).gpu_hours * 3600  # at one tile a second
        expected = plan(regions[1], given.unit, rate=tiles / seconds, like=str(folder / "first"))
        took = run(regions[1], folder / "second", given.unit)
        manifest = json.loads((folder / "second" / "manifest.json").read_text())
        kinds = ("mask", "probability", "polygons", "cells")
        files = [f for kind in kinds for f in (folder / "second/pairs/scene" / kind).iterdir()]
        files += (folder / "second" / "change.parquet").iterdir()
        rows = {
            "seconds of a processor": (expected.gpu_hours * 3600, took),
            "bytes": (expected.stored, sum(file.stat().st_size for file in files)),
            "polygons": (expected.polygons, sum(f["polygons"] for f in manifest["polygons"])),
        }
        print("| | planned | run | off by |")
        print("|---|---:|---:|---:|")
        for what, (planned, found) in rows.items():
            print(
                f"| {what} | {planned:,.0f} | {found:,.0f} | {100 * (planned / found - 1):+.0f} % |"
            )


def make(folder: Path, seed: int, side: int) -> Dates:
    before, after, _ = write_geotiff_pair(folder, seed, (side, side))
    return Dates("scene", str(before), str(after))


def plan(dates: Dates, unit: int, *, rate: float = 1.0, like: str | None = None):  # type: ignore[no-untyped-def]
    scenes, _ = open_scenes([dates], OPTIONS)
    units = list(cut(scenes[0], unit))
    known = read_likeness(like) if like else None
    return estimate(scenes, units, OPTIONS, probability=True, rate=rate, like=known)


def run(dates: Dates, out: Path, unit: int) -> float:
    start = time.process_time()
    predict_area(
        [dates],
        out,
        options=OPTIONS,
        probability=True,
        unit=unit,
        workers=0,
        threads=1,
        device="cpu",
    )
    return time.process_time() - start


if __name__ == "__main__":
    main()
