"""A region on one and on several Ray workers: how throughput scales, what a pixel takes on disk.

    python benchmarks/area.py
    python benchmarks/area.py --side 2048 --unit 512 --workers 0,1,2

One pair of the synthetic world, `tiny` with random weights, one thread for each worker, a local
cluster. Throughput counts from the first finished unit to the last, so that starting Ray and
loading the model (said apart) do not hide how it scales. Whatever the number of workers, every file
must be the same: the benchmark compares them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from adadino.area import predict_area
from adadino.area.units import Dates
from adadino.checkpoint import save
from adadino.config import PRESETS
from adadino.data.synthetic import write_geotiff_pair
from adadino.model.adadino import AdaDINO
from adadino.scene import SceneOptions


def main() -> None:
    parser = argparse.ArgumentParser(description="Scaling of predict-area on this machine.")
    parser.add_argument("--side", type=int, default=2048, help="of the scene, pixels")
    parser.add_argument("--unit", type=int, default=512)
    parser.add_argument("--workers", default="0,1,2")
    parser.add_argument("--threshold", type=float, default=0.5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = save(AdaDINO(PRESETS["tiny"]).eval(), folder / "model", with_backbone=True)
        before, after, _ = write_geotiff_pair(folder / "scene", 3, (options.side, options.side))
        dates = Dates("scene", str(before), str(after))
        digests = set()
        print("| workers | units | start, s | s from first to last | MP/s | of one | load before |")
        print("|---:|---:|---:|---:|---:|---:|---:|")
        one = None
        for workers in map(int, options.workers.split(",")):
            load = os.getloadavg()[0]  # on a busy machine more workers share what one had
            row = measure(dates, folder / str(workers), str(model), workers, options)
            digests.add(row["digest"])
            one = row["rate"] if workers == 1 else one
            share = f"{row['rate'] / one:.2f}" if one else ""
            print(
                f"| {workers} | {row['units']} | {row['start']:.1f} | {row['span']:.1f} | "
                f"{row['rate']:.3f} | {share} | {load:.1f} |",
                flush=True,
            )
        print(f"\nall files equal: {len(digests) == 1}")
        pixels = options.side**2
        for kind in ("mask", "probability", "polygons"):
            files = (folder / options.workers.split(",")[0] / "pairs" / "scene" / kind).iterdir()
            print(f"{kind}: {sum(file.stat().st_size for file in files) / pixels:.4f} bytes/pixel")


def measure(
    dates: Dates, out: Path, model: str, workers: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Predict the region and say how long it took."""
    moments: list[float] = []
    start = time.perf_counter()
    result = predict_area(
        [dates],
        out,
        model,
        options=SceneOptions(readers=1, threshold=options.threshold),
        probability=True,
        unit=options.unit,
        workers=workers,
        threads=1,
        device="cpu",
        progress=lambda *_: moments.append(time.perf_counter()),
    )
    span = moments[-1] - moments[0]
    # The first round of units, one for each worker, is over when the clock starts.
    counted = (result.units - max(workers, 1)) * options.unit**2 / 1e6
    digest = hashlib.sha256()
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.name != ".lock":
            digest.update(path.read_bytes())
    return {
        "units": result.units,
        "start": moments[0] - start,
        "span": span,
        "rate": counted / span,
        "digest": digest.hexdigest(),
    }


if __name__ == "__main__":
    main()
