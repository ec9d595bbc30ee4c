"""The pair the page opens on: a synthetic place at two dates, seen before a model is loaded."""

from __future__ import annotations

import time
from pathlib import Path

from adadino.web.display import Display
from adadino.web.records import Job

SIDE, SEED = 512, 20_261_115
"""Outside the seeds that training splits are made of."""


def demo_job(identity: str, model: str, mark: str, display: Display) -> Job:
    """The job that computes the demo."""
    return Job(
        id=identity, name="demo", client="demo", model=model, mark=mark, source="demo",
        before="before.tif", after="after.tif", before_name="demo before.tif",
        after_name="demo after.tif", pixels=SIDE * SIDE, created=time.time(),
        view=display.as_dict(),
    )  # fmt: skip


def make_demo(folder: Path) -> Display:
    """Write the pair and how the page shows it; a second of work, without the model."""
    from adadino.data.synthetic import World, write_geotiff_pair
    from adadino.geo.raster import open_pair
    from adadino.web.display import lay_out
    from adadino.web.views import write_views

    world = World(plan="organic", empty=0.0)
    before, after, _ = write_geotiff_pair(folder, SEED, SIDE, world)
    with open_pair(before, after) as reader:
        display = lay_out(reader.grid)
        write_views(reader, display, folder)
    return display
