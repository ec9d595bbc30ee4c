"""What stays frozen in an adaptation: computed once for each pair, and kept on disk.

- The decoder alone is trained: kept are the encoder's maps and responses, and the maps of the
  stream's trunk. An update costs a tenth of what the whole model costs.
- The adapters are trained: kept are the tokens before the first adapter, behind the blocks that
  nothing trained comes before. The loop from there on mirrors `model/encoder.py`; tests hold the
  two equal.
- The FFN chunks are chosen once, from a sample of the tiles, as a scene's are. The policies and the
  stream's trunk are not trained.
- A flipped or turned map is not the map of a flipped or turned image: neither the patch embedding
  nor RoPE is symmetric. So a view's features are computed from the turned image, and only labels,
  for which it is exact, are turned themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.errors import ConfigError
from adadino.files import write_atomic
from adadino.model.adadino import AdaDINO
from adadino.model.bscs import top_chunks_by_block
from adadino.model.cgla import Responses
from adadino.model.detector import Detector, Output
from adadino.model.encoder import Encoding
from adadino.model.stream import Evidence
from adadino.training.adapt.options import Part
from adadino.training.adapt.tiles import Tile

Maps = dict[str, Tensor]
"""What is kept of one pair, by name; both dates first where a map has both."""
SAMPLE = 8
"""Tiles from which the chunks are chosen, as many as a scene's."""
VIEWS = 8
"""Flips and turns of a square."""


class View(NamedTuple):
    """A tile as it is, or flipped and turned."""

    tile: Tile
    turn: int
    """0 to 3 quarter turns; 4 to 7 the same of the mirrored tile."""

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.tile.name.replace('/', '-')}.{self.turn}"

    def show(self, image: Tensor) -> Tensor:
        """An image or label (..., H, W) as this view shows it."""
        image = image.flip(-1) if self.turn >= 4 else image
        return torch.rot90(image, self.turn % 4, (-2, -1))


def trained_parameters(model: AdaDINO, part: Part) -> list[nn.Parameter]:
    """The parameters that an adaptation moves."""
    modules: list[nn.Module] = []
    if part in ("decoder", "both"):
        modules += [model.neck, model.decoder]
        modules += [] if model.refiner is None else [model.refiner]
        stream = model.stream
        modules += [] if stream is None else [stream.fine, stream.levels, stream.sharpen]
    if part in ("adapters", "both"):
        modules.append(model.encoder.cgla)
    return [parameter for module in modules for parameter in module.parameters()]


def check_model(model: Detector, part: Part) -> AdaDINO:
    """Refuse a model that has no parts to train.

    Raises:
        ConfigError: It is a peer, or has no adapters where they were asked for.
    """
    if model.config.bands.names or model.config.enlarge != 1:
        raise ConfigError(
            "adapt learns from tiles of red, green and blue at their own size; this model takes "
            f"{model.config.bands.text}, enlarged {model.config.enlarge} times. Train it with "
            "--init instead."
        )
    if not isinstance(model, AdaDINO):
        raise ConfigError(
            f"{model.config.peer} is a peer, and only AdaDINO is adapted; go on training it with "
            "adadino train --init."
        )
    if part != "decoder" and not len(model.encoder.cgla):
        raise ConfigError("the model has no adapters (cgla.mode off); choose --part decoder.")
    return model


class Frozen:
    """The frozen part of a model, and how the rest goes on from it."""

    def __init__(self, model: AdaDINO, part: Part, sample: Sequence[Tile]) -> None:
        self.model, self.part = model, part
        self.chunks = _choose_chunks(model, sample)

    @torch.no_grad()
    def compute(self, view: View) -> Maps:
        """What is kept of a view."""
        model = self.model
        pair = torch.stack([view.show(view.tile.before), view.show(view.tile.after)])
        images = model.pad(pair.to(self.device).float() / 255)
        kept: Maps = {}
        if self.part == "decoder":
            encoding = model.encoder(model.prepare(images), k=self._k, chunks=self.chunks)
            kept |= {f"map{i}": each for i, each in enumerate(encoding.features)}
            if encoding.responses is not None:
                kept |= {f"response{i}": each[0] for i, each in enumerate(encoding.responses)}
        else:
            kept["tokens"] = self._begin(model.prepare(images))
        if model.stream is not None:
            kept |= {f"trunk{i}": each for i, each in enumerate(model.stream.trunk(images))}
        return {name: tensor.contiguous() for name, tensor in kept.items()}

    def forward(self, model: AdaDINO, kept: Sequence[Maps], size: tuple[int, int]) -> Output:
        """The model's answer for a batch of kept pairs; gradients reach what is trained.

        Args:
            model: The model that is trained: a copy of the one the maps come from.
            kept: What `compute` gave.
            size: Height and width of the images.
        """
        maps = {name: _batch([one[name] for one in kept]) for name in kept[0]}
        padded = tuple(-(-side // model.stride) * model.stride for side in size)
        if self.part == "decoder":
            encoding = self._encoding(kept, maps)
        else:
            grid = tuple(s * model.config.scale // model.config.backbone.patch for s in padded)
            encoding = self._go_on(model, maps["tokens"], (grid[0], grid[1]))
        return _decode(model, encoding, maps, (padded[0], padded[1]), size)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def _k(self) -> int:
        return self.model.config.bscs.budget(None)

    def _encoding(self, kept: Sequence[Maps], maps: Maps) -> Encoding:
        features = [maps[f"map{i}"] for i in range(4)]
        names = sorted(name for name in maps if name.startswith("response"))
        responses = [torch.stack([one[name] for one in kept]) for name in names]
        return Encoding(features, Responses(*responses) if responses else None, None)

    def _begin(self, images: Tensor) -> Tensor:
        """The tokens behind the block of the first adapter, before the adapter."""
        encoder = self.model.encoder
        rope = encoder.backbone.rope(*encoder.backbone.grid(images))
        x = encoder.backbone.embed(images)
        for index in range(self._first + 1):
            x = encoder.backbone.blocks[index](x, rope, self._chosen(index))
        return x

    def _go_on(self, model: AdaDINO, x: Tensor, grid: tuple[int, int]) -> Encoding:
        """From the first adapter to the end, as `Encoder.forward` goes."""
        encoder = model.encoder
        rope = encoder.backbone.rope(*grid)
        features, responses = [], []
        for index in range(self._first, len(encoder.backbone.blocks)):
            if index > self._first:
                x = encoder.backbone.blocks[index](x, rope, self._chosen(index))
            if str(index) in encoder.cgla:
                x, response = encoder.cgla[str(index)](x, grid)
                responses.append(response)
            if index in encoder.taps:
                features.append(encoder.backbone.to_map(x, grid))
        return Encoding.of(features, responses, [])

    @property
    def _first(self) -> int:
        return min(int(depth) for depth in self.model.encoder.cgla)

    def _chosen(self, index: int) -> object:
        selector = self.model.encoder.bscs
        return selector.select(index, k=self._k, scores=None, chunks=self.chunks)


def _decode(
    model: AdaDINO, encoding: Encoding, maps: Maps, padded: tuple[int, int], size: tuple[int, int]
) -> Output:
    """Mirror of `model.adadino.decode`, with the trunk's maps in the place of images."""
    differences, evidence = model.neck(encoding.features), None
    if model.stream is not None:
        fine, *rest = (maps[name] for name in sorted(maps) if name.startswith("trunk"))
        levels = [compare(each) for compare, each in zip(model.stream.levels, rest, strict=True)]
        evidence = Evidence(model.stream.fine(fine), levels)
        differences = model.stream.join(evidence, differences)
    pyramid = model.decoder(differences, encoding.responses)
    finest = pyramid[0].float() if model.refiner is None else model.refiner(pyramid[0])
    if model.stream is not None and evidence is not None:
        finest = model.stream.refine(finest, evidence)
    logits = F.interpolate(finest, padded, mode="bilinear", align_corners=False)
    height, width = size
    return Output(logits[..., :height, :width], pyramid, encoding.responses, None)


@torch.no_grad()
def _choose_chunks(model: AdaDINO, sample: Sequence[Tile]) -> Tensor | None:
    """The chunks of every block, as `runtime.Forward.choose_chunks` chooses a scene's."""
    config = model.config.bscs
    if config.selection != "learned" or config.k >= config.chunks:
        return None
    dates = [torch.stack([getattr(t, d) for t in sample[:SAMPLE]]) for d in ("before", "after")]
    device = next(model.parameters()).device
    scores = model(*(date.to(device).float() / 255 for date in dates)).scores
    assert scores is not None
    return top_chunks_by_block(scores, config.k)


def _batch(maps: Sequence[Tensor]) -> Tensor:
    """Maps of both dates, (2, ...) each -> (2B, ...), first dates first."""
    return torch.stack(list(maps), dim=1).flatten(0, 1)


class Store:
    """Kept features as files of a folder; what a killed run has computed is found again."""

    def __init__(self, folder: Path, frozen: Frozen) -> None:
        self.folder, self.frozen = folder, frozen
        self._held: dict[str, Maps] = {}

    def __getitem__(self, view: View) -> Maps:
        from safetensors.torch import load_file, save

        if view.name not in self._held:
            path = self.folder / f"{view.name}.safetensors"
            if not path.is_file():
                write_atomic(path, save(self.frozen.compute(view)))
            self._held[view.name] = load_file(path, device=str(self.frozen.device))
        return self._held[view.name]


def views_of(tiles: Sequence[Tile], most: int) -> Iterator[View]:
    """The views of tiles whose features are kept: as they are, and as many turns as there is room.

    Tiles that are not square are mirrored and turned by 180 degrees only.
    """
    square = all(tile.label.shape[0] == tile.label.shape[1] for tile in tiles)
    turns = [0, 6, 1, 4, 3, 5, 2, 7] if square else [0, 2, 4, 6]
    count = max(1, min(len(turns), most // max(len(tiles), 1)))
    return (View(tile, turn) for tile in tiles for turn in turns[:count])
