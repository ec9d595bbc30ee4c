"""The scene through the model: tiles in, finished rows of probabilities out.

- Tiles are blended in the plan's order, whatever the number of reading threads. Those without a
  valid pixel never reach the model.
- A rectangle of a scene takes the tiles that reach into it from the scene's plan, those that cross
  its borders included. Its pixels are then, bit for bit, those of the whole scene.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adadino.errors import WeightsError
from adadino.geo.read.raster import PairReader
from adadino.geo.tile.blend import Blender, blend_weight
from adadino.geo.tile.tiles import Plan, Tile
from adadino.runtime.runner import Answers, Runner
from adadino.scene.journal import Journal
from adadino.scene.pace import Pace, Report, begin
from adadino.scene.tiles import Group, Images, read_groups, read_tile

Rows = tuple[int, NDArray[np.float32]]
"""The first row and the probabilities (h, width)."""

BEHIND = 2
"""Batches whose answers are on their way while the next one starts: the GPU never waits."""


def fill(journal: Journal, reader: PairReader, forward: Runner, progress: Report | None) -> None:
    """Stream the scene through the model, from the first row that is not finished."""
    height, width = journal.shape
    if journal.done == height:
        return
    tiles = plan_tiles(journal.shape, forward)
    chosen = journal.facts.get("chosen")
    if chosen is not None:
        forward.resume(**chosen)
    else:
        journal.remember(chosen=choose(reader, forward, tiles))
    scene = slice(0, height), slice(0, width)
    rows = predict_rows(reader, forward, tiles, scene, start=journal.done, progress=progress)
    with journal.open(), closing(rows):
        for row, block in rows:
            journal.append(row, block)


def plan_tiles(shape: tuple[int, int], forward: Runner) -> Plan:
    """The tiles of a scene (height, width)."""
    return Plan(*shape, tile=forward.options.tile, overlap=forward.options.overlap)


def choose(reader: PairReader, forward: Runner, tiles: Plan) -> dict[str, Any]:
    """Settle chunks and batch; returns what `forward.resume` takes, as JSON holds it."""
    if forward.chooses:
        forward.choose_chunks(_sample(reader, tiles, forward.options.sample))
    forward.choose_batch()
    chunks = None if forward.chunks is None else forward.chunks.tolist()
    return {"chunks": chunks, "batch": forward.batch}


def predict_rows(
    reader: PairReader,
    forward: Runner,
    tiles: Plan,
    part: tuple[slice, slice],
    *,
    start: int = 0,
    progress: Report | None = None,
) -> Generator[Rows, None, None]:
    """Yield (first row, probabilities (h, width)) of a rectangle of the scene, top to bottom.

    Args:
        reader: The open pair.
        forward: The model, with its chunks and batch settled.
        tiles: The plan of the whole scene.
        part: Rows and columns of the scene; rows are counted from its first.
        start: The first row wanted.
        progress: Called with tiles done, all tiles of the rectangle, and a message.
    """
    options = forward.options
    height, width = (span.stop - span.start for span in part)
    whole = tiles.meeting(*part)
    local = {tile.index: tile.seen_from(*part) for tile in whole}
    due = {index for index, tile in local.items() if tile.row + tile.size > start}
    blender = Blender(
        height,
        width,
        [local[index] for index in sorted(due)],
        blend_weight(options.tile, options.overlap),
        start=start,
    )
    # Chunks chosen per batch need the scene's own batches, whatever part of it is wanted. Else
    # they are the rectangle's, so that a resumed run sees the batches the first one would have.
    batched: Sequence[Tile] = tiles
    places = due
    if options.selection == "scene":
        batched, places = whole, {i for i, tile in enumerate(whole) if tile.index in due}
    groups = _batches(batched, places, forward.batch)
    count = max(len(whole), sum(map(len, groups)))
    done = count - sum(map(len, groups))
    begin(progress, "predicting", done=done, total=count)
    pace = Pace(progress, tiles=count, done=done, megapixels=height * width / 1e6)

    def blend(
        group: Group, images: list[Images | None], started: Sequence[Answers]
    ) -> Iterator[Rows]:
        answers = (answer for part in started for answer in part.wait())
        for tile, image in zip(group, images, strict=True):
            answer = None if image is None else next(answers)
            if answer is not None and not np.isfinite(answer).all():
                # NaN is how a place without data is written: it would pass for one.
                raise WeightsError(
                    f"the model has no number for the tile at row {max(tile.row, 0)}, column "
                    f"{max(tile.col, 0)}: values overflow on {forward.kind}; give another "
                    "checkpoint, or --engine off."
                )
            if image is not None and answer is not None and not image.valid.all():
                answer[tile.inside][~image.valid] = np.nan
            if tile.index in due:
                blender.add(local[tile.index], answer)
        yield from blender.finished()
        empty = images.count(None)
        pace.add(seen=len(images) - empty, empty=empty)

    under_way: deque[tuple[Group, list[Images | None], Sequence[Answers]]] = deque()
    step = options.tile - options.overlap
    read = read_groups(reader, groups, readers=options.threads, size=options.tile, step=step)
    with closing(read):
        for group, images in read:
            started = forward.start([image for image in images if image is not None])
            under_way.append((group, images, started))
            if len(under_way) > BEHIND:
                yield from blend(*under_way.popleft())
        while under_way:
            yield from blend(*under_way.popleft())


def _sample(reader: PairReader, tiles: Plan, count: int) -> list[Images]:
    """Read tiles that have data, drawn from the whole scene, the same ones on every run."""
    found: dict[int, Images] = {}
    for index in _shuffled(len(tiles)):
        images = read_tile(reader, tiles[index])
        if images is not None:
            found[index] = images
        if len(found) == count:
            break
    return [images for _, images in sorted(found.items())]


def _shuffled(count: int) -> Iterator[int]:
    """All numbers below `count`, in the order in which `random.Random(0).sample` gives them.

    Only those that were drawn are held: a list of all the tiles of a country would not fit.
    """
    draw, moved = random.Random(0), dict[int, int]()
    for left in range(count, 0, -1):
        at = draw.randrange(left)
        yield moved.get(at, at)
        moved[at] = moved.pop(left - 1, left - 1)


def _batches(tiles: Sequence[Tile], places: set[int], size: int) -> list[Group]:
    """The batches of a list of tiles in which one of the places lies."""
    return [tiles[i * size : (i + 1) * size] for i in sorted({place // size for place in places})]
