"""The scene through the model: tiles in, finished rows of probabilities out.

Tiles are blended in the plan's order, whatever the number of reading threads. Those without a valid
pixel never reach the model.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from contextlib import closing

import numpy as np

from adadino.geo.blend import Blender, blend_weight
from adadino.geo.raster import PairReader
from adadino.geo.tiles import Tile, plan
from adadino.scene.journal import Journal
from adadino.scene.pace import Pace, Report
from adadino.scene.runner import Answers, Runner
from adadino.scene.tiles import Group, Images, read_groups, read_tile

BEHIND = 2
"""Batches whose answers are on their way while the next one starts: the GPU never waits."""


def fill(journal: Journal, reader: PairReader, forward: Runner, progress: Report | None) -> None:
    """Stream the scene through the model, from the first row that is not finished."""
    options, (height, width) = forward.options, journal.shape
    if journal.done == height:
        return
    tiles = plan(height, width, tile=options.tile, overlap=options.overlap)
    _choose(journal, reader, forward, tiles)
    due = {tile.index for tile in tiles if tile.row + tile.size > journal.done}
    blender = Blender(
        height,
        width,
        [tile for tile in tiles if tile.index in due],
        blend_weight(options.tile, options.overlap),
        start=journal.done,
    )
    # Groups are those of the whole plan: a resumed run sees the batches the first one would have.
    groups = [
        group for group in _grouped(tiles, forward.batch) if any(t.index in due for t in group)
    ]
    todo = sum(map(len, groups))
    pace = Pace(progress, tiles=len(tiles), done=len(tiles) - todo, megapixels=height * width / 1e6)

    def blend(group: Group, images: list[Images | None], started: Sequence[Answers]) -> None:
        answers = (answer for part in started for answer in part.wait())
        for tile, image in zip(group, images, strict=True):
            answer = None if image is None else next(answers)
            if image is not None and answer is not None and not image.valid.all():
                answer[tile.inside][~image.valid] = np.nan
            if tile.index in due:
                blender.add(tile, answer)
        for row, block in blender.finished():
            journal.append(row, block)
        empty = images.count(None)
        pace.add(seen=len(images) - empty, empty=empty)

    under_way: deque[tuple[Group, list[Images | None], Sequence[Answers]]] = deque()
    step = options.tile - options.overlap
    read = read_groups(reader, groups, readers=options.threads, size=options.tile, step=step)
    with journal.open(), closing(read):
        for group, images in read:
            started = forward.start([image for image in images if image is not None])
            under_way.append((group, images, started))
            if len(under_way) > BEHIND:
                blend(*under_way.popleft())
        while under_way:
            blend(*under_way.popleft())


def _choose(journal: Journal, reader: PairReader, forward: Runner, tiles: Sequence[Tile]) -> None:
    """Settle chunks and batch: those of the interrupted run, if there is one."""
    chosen = journal.facts.get("chosen")
    if chosen is not None:
        forward.resume(**chosen)
        return
    if forward.chooses:
        forward.choose_chunks(_sample(reader, tiles, forward.options.sample))
    forward.choose_batch()
    chunks = None if forward.chunks is None else forward.chunks.tolist()
    journal.remember(chosen={"chunks": chunks, "batch": forward.batch})


def _sample(reader: PairReader, tiles: Sequence[Tile], count: int) -> list[Images]:
    """Read tiles that have data, drawn from the whole scene, the same ones on every run."""
    found: dict[int, Images] = {}
    for tile in random.Random(0).sample(tiles, len(tiles)):
        images = read_tile(reader, tile)
        if images is not None:
            found[tile.index] = images
        if len(found) == count:
            break
    return [images for _, images in sorted(found.items())]


def _grouped(tiles: Sequence[Tile], size: int) -> list[Group]:
    return [tiles[i : i + size] for i in range(0, len(tiles), size)]
