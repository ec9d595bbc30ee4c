"""Scene-shared against batch-shared chunk selection, in F1 on labelled scenes.

    python benchmarks/selection.py MODEL DATA --split val [--limit 30]

Each pair of DATA/SPLIT/{A,B,label} is predicted whole, as `adadino predict` does it, once with the
FFN chunks chosen for the scene and once for every batch; one confusion matrix over all pixels each.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path

import torch
from rasterio.errors import NotGeoreferencedWarning

from adadino.checkpoint import load
from adadino.data.folder import find_pairs, read_mask
from adadino.errors import AdaDINOWarning
from adadino.metrics import Confusion, confusion_counts
from adadino.scene import SceneOptions, predict_scene


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--split", default="val")
    parser.add_argument("--limit", type=int, default=10**9)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", NotGeoreferencedWarning)
    warnings.simplefilter("ignore", AdaDINOWarning)
    model = load(arguments.model)
    pairs = find_pairs(arguments.data, arguments.split)[: arguments.limit]
    kinds = {"scene": ("scene", 4), "batch of 4": ("batch", 4), "batch of 16": ("batch", 16)}
    counts = {name: torch.zeros(4, dtype=torch.int64) for name in kinds}
    with tempfile.TemporaryDirectory() as folder:
        for pair in pairs:
            assert pair.label is not None
            truth = torch.from_numpy(read_mask(pair.label))
            for name, (selection, batch) in kinds.items():
                options = SceneOptions(selection=selection, batch=batch)  # type: ignore[arg-type]
                result = predict_scene(
                    pair.before,
                    pair.after,
                    model,
                    output=Path(folder) / f"{pair.name}-{name}.png",
                    options=options,
                )
                counts[name] += confusion_counts(torch.from_numpy(result.mask == 1), truth)
    print(f"{len(pairs)} scenes, k = {model.config.bscs.k}")
    for name, count in counts.items():
        print(f"{name:12s} F1 {100 * Confusion.from_counts(count).f1:.2f}")


if __name__ == "__main__":
    main()
