"""Judging a change map: verdicts on its polygons, drawings, and what is made of them.

A review is a folder. It holds the map that is judged (`review.json`, `polygons.json`, `mask.tif`,
written once) and a log of actions (`log.jsonl`, to which lines are only ever added). Everything
else is computed from the log, so that a killed program loses nothing and undo has no end.

- `actions`: one line of the log: who did what, when.
- `log`: the file of lines: locked, flushed to disk, tolerant of a torn line.
- `state`: the log as a state: verdicts, notes, outlines. A pure function.
- `propose`: what to judge next, and what the verdicts say: counts, precision with its interval.
- `folder`: `Review`, an open review; `start`: a new one from a map.
- `shapes`: checks of drawn outlines.
- `layer`: to GeoPackage, for QGIS; `intake`: back from it.
- `labels`: the corrected mask; `tiles`: what a model learns from.

How a page uses it:

    start_review(folder, probability="p.tif", threshold=0.5)   # in a worker: reads rasters
    review = Review.open(folder)                               # cheap: JSON alone
    review.polygons                    # id -> Polygon: outline in pixels, area, probability
    review.act({"do": "judge", "shape": 12, "verdict": "right", "list": "random"},
               by="ana", key="3f2c")   # on disk when it returns; the same key twice is one action
    review.act({"do": "undo"}, by="ana")                       # the last action of ana
    review.state()                     # verdicts, reshaped, missed, unchanged, notes, undo, redo
    review.next(20)                    # [Proposal(id, list)], the random sample first
    review.summary()                   # counts and precision as JSON has them

Outlines are GeoJSON geometries in pixels (column right, row down, from the upper left corner), so
that no coordinate system is lost on the way. `Review.to_map` and `Review.to_pixels` convert. The
exports (`write_verdicts`, `write_mask`, `write_tiles`) read rasters and belong into a worker.
"""

from adadino.review.actions import Action
from adadino.review.folder import Polygon, Review
from adadino.review.intake import read_verdicts
from adadino.review.labels import write_mask
from adadino.review.layer import verdict_frame, write_verdicts
from adadino.review.propose import Proposal
from adadino.review.start import start_review
from adadino.review.state import State
from adadino.review.tiles import write_layer_tiles, write_tiles

__all__ = [
    "Action",
    "Polygon",
    "Proposal",
    "Review",
    "State",
    "read_verdicts",
    "start_review",
    "verdict_frame",
    "write_layer_tiles",
    "write_mask",
    "write_tiles",
    "write_verdicts",
]
