"""A whole scene: read -> tile -> model -> blend -> write, streaming from top to bottom.

Memory is one band of rows. Reading happens in threads while the model works. The FFN chunks of a
scene are chosen once, from a sample of its tiles taken as one batch (`selection="scene"`), so that
the answer for a place does not depend on which tiles happened to share its batch.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import rasterio
import torch
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window
from torch import Tensor

import adadino
from adadino.devices import choose_device
from adadino.errors import ConfigError, InputError
from adadino.geo.blend import Blender, blend_weight
from adadino.geo.cog import MASK, PROBABILITY, check_target, raster_writer
from adadino.geo.fill import fill_invalid
from adadino.geo.grid import Grid
from adadino.geo.layers import write_layer
from adadino.geo.qml import write_qml
from adadino.geo.raster import PairReader, open_pair
from adadino.geo.register import Shift, estimate_shift
from adadino.geo.tiles import Tile, pad_reflect, plan
from adadino.geo.vector import polygons
from adadino.model.adadino import AdaDINO
from adadino.model.bscs import top_chunks
from adadino.model.checkpoint import load

if TYPE_CHECKING:
    import geopandas as gpd

Report = Callable[[int, int, str], None]
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class SceneOptions:
    """How a scene is predicted."""

    threshold: float = 0.5
    tile: int = 256
    """Side of a tile; the size the model was trained on."""
    overlap: int = 64
    batch: int = 4
    selection: Literal["scene", "batch"] = "scene"
    """Choose the FFN chunks once for the scene, or for every batch, as the paper does."""
    sample: int = 8
    """Tiles from which a scene's chunks are chosen."""
    bands: tuple[int, ...] | None = None
    scale: tuple[float, float] | None = None
    register: bool = False
    """Move `after` by the estimated shift, if the estimate is reliable."""
    min_area: float = 0.0
    simplify: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ConfigError(f"threshold is {self.threshold}, must lie between 0 and 1.")
        if self.batch < 1 or self.sample < 1:
            raise ConfigError("batch and sample must be at least 1.")


@dataclass(frozen=True)
class SceneResult:
    """What was found, and where it was written."""

    grid: Grid
    change_fraction: float
    """Share of the valid pixels that changed."""
    polygons: gpd.GeoDataFrame = field(repr=False)
    shift: Shift
    registered: bool
    outputs: tuple[Path, ...]
    warnings: tuple[str, ...]


def predict_scene(
    before: str | PathLike[str],
    after: str | PathLike[str],
    model: AdaDINO | str | PathLike[str] = "tiny",
    *,
    output: str | PathLike[str],
    probability: str | PathLike[str] | None = None,
    vector: str | PathLike[str] | None = None,
    options: SceneOptions | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Report | None = None,
) -> SceneResult:
    """Find the change between two rasters of one place.

    Args:
        before: The first date, whose grid the result has: anything GDAL opens.
        after: The second date; warped onto that grid where its own differs.
        model: A model, or what `adadino.load` takes.
        output: The change mask: a COG (.tif), or .png for images without coordinates.
        probability: The probability of change, as its own raster.
        vector: Polygons: .gpkg, .geojson, .fgb or .shp.
        options: Threshold, tiling, selection, bands, registration.
        device: Where the model runs.
        overwrite: Replace outputs that exist.
        progress: Called with tiles done, all tiles, and a message.

    Raises:
        InputError: The rasters cannot be read or compared.
        WriteError: An output exists, is an input, or cannot be written.
    """
    options = options or SceneOptions()
    if Path(before).resolve() == Path(after).resolve():
        raise InputError(f"before and after are the same file, {before}; give two dates.")
    targets = [Path(p) for p in (output, probability, vector) if p is not None]
    for target in targets:
        check_target(target, inputs=(str(before), str(after)), overwrite=overwrite)
    place = choose_device(device)
    network = load(model) if not isinstance(model, AdaDINO) else model
    network = network.to(place).eval()
    if options.tile % network.config.stride:
        raise ConfigError(f"tile {options.tile} is no multiple of {network.config.stride} pixels.")
    kinds: dict[str, Any] = {"bands": options.bands, "scale": options.scale}
    with ExitStack() as stack:
        # GDAL's own default, a share of the machine's memory, would be most of what is used here.
        stack.enter_context(rasterio.Env(GDAL_CACHEMAX=128))
        reader = stack.enter_context(open_pair(str(before), str(after), **kinds))
        shift = estimate_shift(_window_reader(reader), reader.grid)
        registered = options.register and shift.reliable
        if registered:
            moved = open_pair(str(before), str(after), **kinds, shift=(shift.dy, shift.dx))
            reader = stack.enter_context(moved)
        tags = _tags(network, options, before, after)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="adadino-"))
        # Polygons need the probabilities as numbers: where no GeoTIFF of them was asked for, one
        # lives until they are made.
        maps = [Path(probability)] if probability is not None else []
        if not maps or maps[0].suffix.lower() == ".png":
            maps.insert(0, Path(folder) / "probability.tif")
        changed, valid = _write_rasters(
            network, reader, Path(output), maps, options, tags, overwrite, progress
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)  # pixel mode has no place
            mask = stack.enter_context(rasterio.open(output))
            chance = stack.enter_context(rasterio.open(maps[0]))
            frame = polygons(
                mask, chance, reader.grid, min_area=options.min_area, simplify=options.simplify
            )
        written = [*targets]
        if vector is not None:
            write_layer(frame, Path(vector), overwrite=overwrite)
            write_qml(Path(vector).with_suffix(".qml"), "polygons")
            written.append(Path(vector).with_suffix(".qml"))
        return SceneResult(
            grid=reader.grid,
            change_fraction=changed / max(valid, 1),
            polygons=frame,
            shift=shift,
            registered=registered,
            outputs=tuple(written),
            warnings=tuple(str(w) for w in reader.warnings),
        )


def _write_rasters(
    network: AdaDINO,
    reader: PairReader,
    output: Path,
    maps: Sequence[Path],
    options: SceneOptions,
    tags: dict[str, object],
    overwrite: bool,
    progress: Report | None,
) -> tuple[int, int]:
    """Stream the scene through the model into both rasters; returns changed and valid pixels."""
    grid = reader.grid
    tiles = plan(grid.height, grid.width, tile=options.tile, overlap=options.overlap)
    blender = Blender(grid.height, grid.width, tiles, blend_weight(options.tile, options.overlap))
    changed = valid = 0
    kinds: dict[str, Any] = {"tags": tags, "overwrite": overwrite}
    with ExitStack() as stack:
        mask = stack.enter_context(raster_writer(output, grid, MASK, **kinds))
        chances = [
            stack.enter_context(raster_writer(path, grid, PROBABILITY, **kinds)) for path in maps
        ]
        stack.enter_context(torch.inference_mode())

        def emit() -> None:
            nonlocal changed, valid
            for row, block in blender.finished():
                window = Window(0, row, grid.width, len(block))
                seen = reader.read_raw(window).valid & ~np.isnan(block)
                block = np.where(seen, block, np.nan).astype(np.float32)
                flags = np.where(seen, block >= options.threshold, 255).astype(np.uint8)
                mask.write(row, flags)
                for chance in chances:
                    chance.write(row, block)
                changed += int((flags == 1).sum())
                valid += int(seen.sum())

        emit()
        chunks = _scene_chunks(network, reader, tiles, options)
        done = 0
        for group, before, after in _batches(reader, tiles, options.batch):
            logits = network(*_to(network, before, after), chunks=chunks).logits
            maps_ = logits.softmax(1)[:, 1].float().cpu().numpy()
            for tile, probability in zip(group, maps_, strict=True):
                blender.add(tile, probability)
            emit()
            done += len(group)
            if progress is not None:
                progress(done, len(tiles), "")
    return changed, valid


def _scene_chunks(
    network: AdaDINO, reader: PairReader, tiles: Sequence[Tile], options: SceneOptions
) -> Tensor | None:
    """The FFN chunks of every block for the whole scene, or None to choose per batch."""
    config = network.config.bscs
    if options.selection == "batch" or config.selection != "learned" or config.k == config.chunks:
        return None
    step = max(1, len(tiles) // options.sample)
    sampled = tiles[step // 2 :: step][: options.sample]
    (_, before, after), *_ = _batches(reader, sampled, len(sampled))
    scores = network(*_to(network, before, after)).scores
    assert scores is not None
    return torch.stack([top_chunks(scores[:, b], config.k) for b in range(scores.shape[1])])


def _batches(
    reader: PairReader, tiles: Sequence[Tile], size: int
) -> Iterator[tuple[list[Tile], Tensor, Tensor]]:
    """Batches of tiles in the plan's order, read two batches ahead."""
    with ThreadPoolExecutor(2) as pool:
        waiting: deque[tuple[list[Tile], list[Future[Pair]]]] = deque()
        groups = [list(tiles[i : i + size]) for i in range(0, len(tiles), size)]
        for group in groups:
            waiting.append((group, [pool.submit(_read_tile, reader, tile) for tile in group]))
            if len(waiting) > 2:
                yield _stack(*waiting.popleft())
        while waiting:
            yield _stack(*waiting.popleft())


def _stack(group: list[Tile], pairs: list[Future[Pair]]) -> tuple[list[Tile], Tensor, Tensor]:
    before, after = zip(*(future.result() for future in pairs), strict=True)
    return group, torch.stack(before), torch.stack(after)


def _read_tile(reader: PairReader, tile: Tile) -> Pair:
    """A tile's two images (3, size, size), holes filled and edges reflected."""
    before, after, valid = reader.read(Window.from_slices(*tile.window))

    def whole(image: NDArray[np.float32]) -> Tensor:
        filled = fill_invalid(np.moveaxis(image, 0, -1), valid)  # (3, h, w) -> (h, w, 3)
        padded = pad_reflect(filled, tile.padding)
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(padded, -1, 0)))

    return whole(before), whole(after)


def _to(network: AdaDINO, *images: Tensor) -> list[Tensor]:
    return [image.to(network.normalize.mean.device) for image in images]


def _window_reader(reader: PairReader) -> Callable[[int, int, int, int], Any]:
    return lambda row, col, height, width: reader.read(Window(col, row, width, height))


def _tags(
    network: AdaDINO,
    options: SceneOptions,
    before: str | PathLike[str],
    after: str | PathLike[str],
) -> dict[str, object]:
    return {
        "TIFFTAG_SOFTWARE": f"adadino {adadino.__version__}",
        "ADADINO_BACKBONE": network.config.backbone.name,
        "ADADINO_K": network.config.bscs.k,
        "ADADINO_THRESHOLD": options.threshold,
        "ADADINO_SELECTION": options.selection,
        "ADADINO_BEFORE": Path(before).name,
        "ADADINO_AFTER": Path(after).name,
    }
