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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adadino.errors import WeightsError
from adadino.geo.read.raster import valid_pixels
from adadino.geo.read.reader import PairReader
from adadino.geo.tile.blend import Blender, blend_weight
from adadino.geo.tile.tiles import Tile, TilePlan
from adadino.runtime.protocol import Answers, Images, Runner
from adadino.scene.journal import Journal
from adadino.scene.options import SceneOptions
from adadino.scene.pace import Pace, Report, begin
from adadino.scene.tiles import Group, read_groups, read_tile
from adadino.semantic.rows import told

Float = NDArray[np.float32]
Rows = tuple[int, Float]
"""The first row and the probabilities (h, width); with classes (maps, h, width)."""
Span = tuple[slice, slice]
"""Rows and columns of a rectangle of the scene."""

BEHIND = 2
"""Batches whose answers are on their way while the next one starts: the GPU never waits."""


class SceneStream:
    """An open pair, a model that is ready, and the plan of the tiles between them."""

    def __init__(self, reader: PairReader, forward: Runner, options: SceneOptions) -> None:
        self.reader, self.forward, self.options = reader, forward, options
        self.plan = TilePlan(*reader.grid.shape, tile=options.tile, overlap=options.overlap)

    def choose(self) -> dict[str, Any]:
        """Settle chunks and batch; returns what `Runner.resume` takes, as JSON holds it."""
        forward = self.forward
        if forward.chooses:
            forward.choose_chunks(_sample(self.reader, self.plan, self.options.sample))
        forward.choose_batch()
        chunks = None if forward.chunks is None else forward.chunks.tolist()
        return {"chunks": chunks, "batch": forward.batch}

    def rows(
        self, part: Span, *, start: int = 0, progress: Report | None = None
    ) -> Generator[Rows, None, None]:
        """Yield (first row, probabilities (h, width)) of a rectangle of the scene, top to bottom.

        The model's chunks and batch must be settled.

        Args:
            part: Rows and columns of the scene; the rows that are yielded count from its first.
            start: The first row wanted.
            progress: Called with tiles done, all tiles of the rectangle, and a message.
        """
        height, width = (span.stop - span.start for span in part)
        by_scene = self.options.selection == "batch"
        work = _work(self.plan, part, start, size=self.forward.batch, by_scene=by_scene)
        weight = blend_weight(self.options.tile, self.options.overlap)
        maps = None if self.forward.classes is None else 1 + 2 * len(self.forward.classes.names)
        blender = Blender(height, width, work.due.values(), weight, start=start, channels=maps)
        begin(progress, "predicting", done=work.done, total=work.total)
        size = height * width / 1e6
        pace = Pace(progress, tiles=work.total, done=work.done, megapixels=size)
        with closing(self._answers(work.groups)) as answered:
            for group, answers in answered:
                for tile, answer in zip(group, answers, strict=True):
                    if tile.index in work.due:
                        blender.add(work.due[tile.index], answer)
                yield from blender.finished()
                empty = sum(answer is None for answer in answers)
                pace.add(seen=len(answers) - empty, empty=empty)

    def _answers(
        self, groups: Sequence[Group]
    ) -> Generator[tuple[Group, list[Float | None]], None, None]:
        """Each group's probabilities, while the groups that follow are read and computed."""
        options = self.options
        under_way: deque[tuple[Group, list[Images | None], Sequence[Answers]]] = deque()
        step = options.tile - options.overlap
        read = read_groups(
            self.reader, groups, readers=options.threads, size=options.tile, step=step
        )
        with closing(read):
            for group, images in read:
                started = self.forward.start([image for image in images if image is not None])
                under_way.append((group, images, started))
                if len(under_way) > BEHIND:
                    yield self._arrived(*under_way.popleft())
            while under_way:
                yield self._arrived(*under_way.popleft())

    def _arrived(
        self, group: Group, images: list[Images | None], started: Sequence[Answers]
    ) -> tuple[Group, list[Float | None]]:
        """Wait for a group's probabilities: NaN without data, None for a tile that has none."""
        values = (answer for batch in started for answer in batch.wait())
        answers: list[Float | None] = []
        for tile, image in zip(group, images, strict=True):
            if image is None:
                answers.append(None)
                continue
            answer = next(values)
            if not np.isfinite(answer).all():
                # NaN is how a place without data is written: it would pass for one.
                raise WeightsError(
                    f"the model has no number for the tile at row {max(tile.row, 0)}, column "
                    f"{max(tile.col, 0)}: values overflow on {self.forward.kind}; give another "
                    "checkpoint, or --engine off."
                )
            if not image.valid.all():
                answer[..., *tile.inside][..., ~image.valid] = np.nan
            answers.append(answer)
        return group, answers


def fill(journal: Journal, stream: SceneStream, progress: Report | None) -> None:
    """Stream the scene through the model, from the first row that is not finished."""
    height, width = journal.shape
    if journal.done == height:
        return
    if stream.forward.fits:
        stream.forward.fit(*valid_pixels(stream.reader))
    chosen = journal.facts.get("chosen")
    if chosen is not None:
        stream.forward.resume(**chosen)
    else:
        journal.remember(chosen=stream.choose())
    scene = slice(0, height), slice(0, width)
    rows = stream.rows(scene, start=journal.done, progress=progress)
    with journal.open(), closing(rows):
        for row, block in rows:
            journal.append(row, *told(block))


class _Work(NamedTuple):
    """The tiles of a rectangle that are still to do."""

    due: dict[int, Tile]
    """Those that are blended, by number, as seen from the rectangle."""
    groups: list[Group]
    """The batches that the model sees; they hold tiles that are not due, too."""
    total: int
    """All tiles, finished ones included."""

    @property
    def done(self) -> int:
        """Tiles that an earlier run has done."""
        return self.total - sum(map(len, self.groups))


def _work(plan: TilePlan, part: Span, start: int, *, size: int, by_scene: bool) -> _Work:
    """Find the tiles and batches of `size` that the rows of a rectangle from `start` on need.

    Chunks that are chosen per batch need the scene's own batches, whatever part of it is wanted
    (`by_scene`). Else the batches are the rectangle's, so that a resumed run has the same ones.
    """
    meeting = plan.meeting(*part)
    local = {tile.index: tile.seen_from(*part) for tile in meeting}
    due = {index: tile for index, tile in local.items() if tile.row + tile.size > start}
    if by_scene:
        groups = _batches(plan, set(due), size)
    else:
        places = {place for place, tile in enumerate(meeting) if tile.index in due}
        groups = _batches(meeting, places, size)
    return _Work(due, groups, max(len(meeting), sum(map(len, groups))))


def _batches(tiles: Sequence[Tile], places: set[int], size: int) -> list[Group]:
    """The batches of a list of tiles in which one of the places lies."""
    return [tiles[i * size : (i + 1) * size] for i in sorted({place // size for place in places})]


def _sample(reader: PairReader, plan: TilePlan, count: int) -> list[Images]:
    """Read tiles that have data, drawn from the whole scene, the same ones on every run."""
    found: dict[int, Images] = {}
    for index in _shuffled(len(plan)):
        images = read_tile(reader, plan[index])
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
