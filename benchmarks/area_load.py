"""What a country asks of the driver: units that cost nothing, and everything else as it is.

    python benchmarks/area_load.py --units 15000 --workers 2
    python benchmarks/area_load.py --units 3750 --workers 2 --kill 20

Model and images are stubs: a worker writes 84 polygons for each unit, 1 in 10 of them across a
border, and one and the same mask. Ray, the ledger, joining and all files are real. The region is
predicted; one record is taken away; the same call goes on. With `--kill`, a worker is killed each
so many seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import shapely
from numpy.typing import NDArray

from adadino.area import pool, predict_area
from adadino.area import run as area_run
from adadino.area.ledger import Ledger, dates_facts
from adadino.area.polygons import join_region
from adadino.area.store import Folder
from adadino.area.units import Dates, Unit, cut, open_scenes
from adadino.geo.polygons.components import Components
from adadino.geo.polygons.seams import Part, save_part, trace_part
from adadino.geo.polygons.vector import Pieces
from adadino.scene import SceneOptions

SIDE = 4096
CHANGES = 84
"""Polygons of a unit: 20 for each square kilometre at half a metre."""


class StubWorker:
    """Leaves what a worker leaves, without images and without a model."""

    def __init__(self, job: Any) -> None:
        self.ledger = Ledger(Folder(Path(job.out)))
        mask, self.part = template()
        with tempfile.TemporaryDirectory() as folder:  # one mask for all, wherever it says it lies
            path = Path(folder) / "mask.tif"
            profile = {"width": SIDE, "height": SIDE, "count": 1, "dtype": "uint8"}
            with rasterio.open(path, "w", driver="COG", **profile) as raster:
                raster.write(mask, 1)
            self.mask = path.read_bytes()

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Write the files and the records of units."""
        outcomes = []
        for text in batch["unit"]:
            fields = json.loads(text)
            unit = Unit(**{**fields, "dates": Dates(**fields["dates"])})
            record = self.ledger.record(unit) or self.leave(unit)
            outcomes.append(json.dumps({**record, "unit": f"{unit.dates.name}/{unit.name}"}))
        return {"outcome": outcomes}

    def leave(self, unit: Unit) -> dict[str, Any]:
        """Write the files of a unit, and its record."""
        ledger = self.ledger
        if ledger.survey(unit.dates) is None:
            ledger.publish_survey(unit.dates, {"files": dates_facts(unit.dates)})
        ledger.attempt(unit)
        for kind, content in (("mask", self.mask), ("polygons", save_part(self.moved(unit)))):
            path = ledger.store.path(ledger.file(unit, kind))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        record = ledger.finish(unit, ["mask", "polygons"], changed=1, valid=SIDE**2)
        ledger.end_attempts(unit)
        return record

    def moved(self, unit: Unit) -> Part:
        """The changes of the template where a unit lies."""
        outlines, each = self.part.pieces
        by = np.array([unit.col, unit.row])
        placed = Components(
            each.row + unit.row, each.col + unit.col, each.count, each.total, each.prob_max
        )
        pieces = Pieces(shapely.transform(outlines, lambda xy: xy + by), placed)
        rows = slice(unit.row, unit.row + SIDE)
        return self.part._replace(rows=rows, cols=slice(unit.col, unit.col + SIDE), pieces=pieces)


def template() -> tuple[NDArray[np.uint8], Part]:
    """The changes of a unit, which fit those of its neighbours: the mask is periodic."""
    draw = np.random.default_rng(0)
    mask = np.zeros((SIDE, SIDE), np.uint8)
    for number in range(CHANGES):
        height, width = draw.integers(8, 60, 2)
        # One in ten lies across the border, wherever it goes from there.
        row, col = draw.integers(100, SIDE - 100, 2) if number % 10 else (SIDE - 5, number * 40)
        corner = np.ix_(np.arange(row, row + height) % SIDE, np.arange(col, col + width) % SIDE)
        mask[corner] = 1
        mask[row % SIDE, col % SIDE] = 0  # outlines have more than four corners
    return mask, trace_part(mask, mask.astype(np.float32), 0, 0)


class Killer(threading.Thread):
    """Kills one of the workers every so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(daemon=True)
        self.seconds, self.killed, self.over = seconds, 0, threading.Event()

    def run(self) -> None:
        """Kill until it is over."""
        while not self.over.wait(self.seconds):
            found = our_workers()
            if found:
                os.kill(random.choice(found), signal.SIGKILL)
                self.killed += 1


def our_workers() -> list[int]:
    """The processes of Ray's workers that descend from this one."""
    parents, named = {}, []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat, line = (folder / "stat").read_text(), (folder / "cmdline").read_bytes()
            except OSError:  # it has just ended
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
            if line.startswith(b"ray::MapWorker"):
                named.append(int(folder.name))

    def descends(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [pid for pid in named if descends(pid)]


def main() -> None:
    parser = argparse.ArgumentParser(description="What many units ask of the driver.")
    parser.add_argument("--units", type=int, default=3750)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", type=float, help="seconds between two deaths of workers")
    given = parser.parse_args()
    across = round(math.sqrt(given.units))
    with tempfile.TemporaryDirectory(prefix="adadino-load-") as name:
        folder, out = Path(name), Path(name) / "out"
        for date in ("before", "after"):  # a raster of no images: nobody reads it
            (folder / f"{date}.vrt").write_text(VRT.format(side=across * SIDE, date=date))
        dates = Dates("country", str(folder / "before.vrt"), str(folder / "after.vrt"))
        pool.RayWorker = StubWorker  # type: ignore[assignment, misc]
        killer = Killer(given.kill) if given.kill else None
        if killer:
            killer.start()
        first = measure(dates, out, given.workers)
        if killer:
            killer.over.set()
        done = sorted((out / "pairs" / "country" / "done").iterdir())
        done[len(done) // 2].unlink()
        again = measure(dates, out, given.workers)
        assert again["predicted"] == 1
        said = {
            "units": across**2,
            "polygons": first["polygons"],
            "units_per_s": across**2 / first["predicting_s"],
            "joining_s": first["tying_s"],
            "restart_s": again["until_predicting_s"],
            "restart_whole_s": again["whole_s"],
            "driver_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
            "killed": killer.killed if killer else 0,
            **{name: first[name] for name in ("whole_s", "joining_parts_s", "rasters_s")},
            "join_cpu_s": join_here(dates, out),
            "load": os.getloadavg()[0],
        }
        print(json.dumps({name: round(value, 3) for name, value in said.items()}))


def join_here(dates: Dates, out: Path) -> float:
    """Seconds of one processor for joining all polygons again, on a busy machine, too."""
    scenes, _ = open_scenes([dates], SceneOptions())
    ledger = Ledger(Folder(out))
    units = list(cut(scenes[0], SIDE))
    done = {dates: {unit: ledger.record(unit) or {} for unit in units}}
    for name in ("cells", "partitions.json"):
        ledger.store.remove(f"pairs/country/{name}")
    start = time.process_time()
    join_region(ledger, scenes, done, SIDE, SceneOptions(), map)
    return time.process_time() - start


def measure(dates: Dates, out: Path, workers: int) -> dict[str, float]:
    """Predict the region, and say what took how long."""
    marks: dict[str, float] = {}
    names = ("_collect", "_tie")
    plain = {name: getattr(area_run, name) for name in names}
    joined = area_run.join_region

    def timed(name: str, function: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            marks[f"{name} begins"] = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                marks[f"{name} ends"] = time.perf_counter()

        return call

    for name in names:
        setattr(area_run, name, timed(name, plain[name]))
    area_run.join_region = timed("join", joined)
    start = time.perf_counter()
    try:
        result = predict_area(
            [dates], out, "tiny", unit=SIDE, workers=workers, threads=1, device="cpu"
        )
    finally:
        for name in names:
            setattr(area_run, name, plain[name])
        area_run.join_region = joined
    end = time.perf_counter()
    return {
        "predicted": result.predicted,
        "polygons": result.polygon_count,
        "until_predicting_s": marks["_collect begins"] - start,
        "predicting_s": marks["_collect ends"] - marks["_collect begins"],
        "tying_s": marks["_tie ends"] - marks["_tie begins"],
        "joining_parts_s": marks["join ends"] - marks["join begins"],
        "rasters_s": marks["_tie ends"] - marks["join ends"],
        "whole_s": end - start,
    }


VRT = """<VRTDataset rasterXSize="{side}" rasterYSize="{side}">
<SRS>EPSG:32633</SRS><GeoTransform>500000, 0.5, 0, 5800000, 0, -0.5</GeoTransform>
<Metadata><MDI key="date">{date}</MDI></Metadata>
<VRTRasterBand dataType="Byte" band="1"/><VRTRasterBand dataType="Byte" band="2"/>
<VRTRasterBand dataType="Byte" band="3"/></VRTDataset>
"""


if __name__ == "__main__":
    main()
