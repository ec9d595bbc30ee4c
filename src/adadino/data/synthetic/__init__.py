"""A synthetic world: procedural image pairs with exact change masks, for tests, demo, pretraining.

Read it in this order:

- `world`: the settings, and `make_pair`, which calls everything below.
- `land`: the map of one place: what stands where, at which date, and what changes.
- `plan`, `layout`: how land is divided, and what each piece is filled with.
- `view`: how a date is seen: season, sun, haze, sensor.
- `palette`, `paint`, `render`: colours and noise, the painter, and the images and the mask.
- `cover`: the classes of both dates.
- `write`: pairs, GeoTIFFs and datasets on disk.
- `series`: one place at many dates.
"""

from adadino.data.synthetic.cover import CLASSES, Covers
from adadino.data.synthetic.land import CHANGES
from adadino.data.synthetic.plan import PLANS
from adadino.data.synthetic.series import ImageSeries, make_series, write_series
from adadino.data.synthetic.view import SEASONS
from adadino.data.synthetic.world import (
    DEMO_SEED,
    DEMO_SIZE,
    HELD_OUT,
    ClassPair,
    ImagePair,
    World,
    make_classes,
    make_pair,
)
from adadino.data.synthetic.write import (
    split_seeds,
    synthesize,
    write_dataset,
    write_geotiff_pair,
    write_pair,
)

__all__ = [
    "CHANGES",
    "CLASSES",
    "DEMO_SEED",
    "DEMO_SIZE",
    "HELD_OUT",
    "PLANS",
    "SEASONS",
    "ClassPair",
    "Covers",
    "ImagePair",
    "ImageSeries",
    "World",
    "make_classes",
    "make_pair",
    "make_series",
    "split_seeds",
    "synthesize",
    "write_dataset",
    "write_geotiff_pair",
    "write_pair",
    "write_series",
]
