"""The pair the page opens on: a synthetic place at two dates, and what the bundled model finds.

The pair, as the page shows it, and the probability come with the package (`shipped/`, 260 kB). A
first start has to load torch and to run the model, which takes a slow or busy processor longer
than anybody looks at an empty page. A test holds that the model computes the same. For any other
model the pair is shown at once, and the result when it is computed.

    python -m adadino.web.jobs.demo      makes `shipped/` again, after a change of the bundled model
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from adadino.web.jobs.records import Job
from adadino.web.view.display import Display

MODEL = "tiny"
SHIPPED = Path(__file__).parents[1] / "shipped"
FACTS = "demo.json"
STEPS = 4096
"""The shipped probability is cut down to multiples of 1/4096, a twentieth of the size. Cut and not
rounded: at 0.5 and other multiples, the mask is that of the whole numbers."""


def demo_job(
    identity: str, model: str, mark: str, display: Display, result: dict[str, Any] | None = None
) -> Job:
    """The job of the demo; without a result, it is computed."""
    now = time.time()
    return Job(
        id=identity, name="demo", client="demo", model=model, mark=mark, source="demo",
        before="before.tif", after="after.tif", before_name="demo before.tif",
        after_name="demo after.tif", pixels=display.width * display.height, created=now,
        view=display.as_dict(),
        result=result, state="done" if result else "queued", ended=now if result else None,
    )  # fmt: skip


def make_demo(folder: Path) -> Display:
    """Write the pair and how the page shows it; a second of work, without the model."""
    from adadino.data.synthetic import DEMO_SEED, DEMO_SIZE, HELD_OUT, write_geotiff_pair
    from adadino.geo.read.raster import open_pair
    from adadino.web.view.display import lay_out
    from adadino.web.view.views import write_views

    before, after, _ = write_geotiff_pair(folder, DEMO_SEED, DEMO_SIZE, HELD_OUT)
    with open_pair(before, after) as reader:
        display = lay_out(reader.grid)
        write_views(reader, display, folder)
    return display


def shipped_mark(source: str) -> str | None:
    """What tells one shipped demo from the next; None if a model is not the bundled one."""
    if source != MODEL or Path(source).exists() or not (SHIPPED / FACTS).is_file():
        return None  # a folder of that name comes before the bundled model
    return hashlib.sha256((SHIPPED / FACTS).read_bytes()).hexdigest()[:16]


def unpack_demo(folder: Path) -> tuple[Display, dict[str, Any]]:
    """Put what is shipped into a job's folder; where it lies and what was found."""
    for path in SHIPPED.glob("*.tif"):
        shutil.copyfile(path, folder / path.name)
    facts = json.loads((SHIPPED / FACTS).read_text())
    return Display.from_dict(facts["view"]), facts["result"]


def ship(folder: Path) -> None:
    """Compute the demo with the bundled model, on the CPU, and keep what the page needs."""
    import numpy as np
    import rasterio

    from adadino.geo.write.cog import PROBABILITY, raster_writer
    from adadino.scene import predict_scene
    from adadino.web.jobs.predict import facts_of

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        display = make_demo(scratch)
        result = predict_scene(
            scratch / "before.tif",
            scratch / "after.tif",
            MODEL,
            output=scratch / "change.tif",
            probability=scratch / "probability.tif",
            device="cpu",
        )
        with rasterio.open(scratch / "probability.tif") as dataset:
            tags = {k: v for k, v in dataset.tags().items() if k != "AREA_OR_POINT"}
            cut = np.floor(dataset.read(1) * STEPS) / STEPS
        (folder / "probability.tif").unlink(missing_ok=True)
        with raster_writer(folder / "probability.tif", display.grid, PROBABILITY, tags=tags) as out:
            out.write(0, cut.astype(np.float32))
        for path in scratch.glob("view-*.tif"):
            shutil.copyfile(path, folder / path.name)
    digest = hashlib.sha256((folder / "probability.tif").read_bytes()).hexdigest()
    facts = {
        "view": display.as_dict(),
        "result": facts_of(result) | {"device": None, "seconds": None, "ahead": True},
        "probability": digest,
    }
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    ship(SHIPPED)
