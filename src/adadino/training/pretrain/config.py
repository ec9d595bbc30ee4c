"""One pretraining run as a frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from adadino.config import Config, preset
from adadino.errors import ConfigError
from adadino.schema import added


@dataclass(frozen=True)
class PretrainConfig:
    """One pretraining run."""

    images: tuple[str, ...] = ()
    """Folders that are searched for images."""
    output: str = "runs/pretrain"
    preset: str = "tiny"
    teacher: str | None = None
    """EfficientNet-lite0's file; by default the installed package's."""
    probe: tuple[str, ...] = ()
    """Folders of labelled training pairs (A, B, label) on which the frozen features are watched."""
    synthetic: int = 0
    """Scenes of the synthetic world to add."""
    steps: int = 4000
    batch: int = 128
    lr: float = 2e-3
    weight_decay: float = 0.05
    warmup: int = 400
    """Steps over which the learning rate rises."""
    mask: float = 0.3
    """Share of the patches that is hidden from the student."""
    drop: float = 0.5
    """Share of the steps that run on a random part of the FFN's chunks, so that BSCS can prune."""
    size: int = 256
    """Side of a view; views are cut from tiles of twice this side."""
    zoom: tuple[float, float] = (0.4, 1.0)
    """Side of a view's cut-out as a share of the tile's."""
    jitter: float = 0.4
    """Strength of brightness, contrast and saturation changes. The student sees them, the teacher
    does not: what light and season change is not what the features should say."""
    limit: int = 8000
    """The most tiles held in memory; a larger archive is sampled evenly."""
    every: int = 500
    """Steps between checkpoints and probes."""
    precision: Literal["32", "bf16"] = "bf16"
    compile: bool = False
    """Compile the blocks: half a minute to start, faster after."""
    device: str = "auto"
    seed: int = 0
    init: str | None = added(None)
    """Backbone weights to go on from, such as DINOv2's. The teacher is then a slow copy of the
    student itself, not EfficientNet-lite0. Take a small lr, such as 1e-4."""
    patch: int | None = added(None)
    """Side of a patch if not the preset's: 16 resizes DINOv2's."""

    @property
    def model(self) -> Config:
        """The model whose backbone is the student."""
        whole = preset(self.preset)
        patch = whole.backbone.patch if self.patch is None else self.patch
        if patch != whole.backbone.patch and not whole.backbone.grid:
            raise ConfigError(f"patch is {patch}, but only DINOv2's can be resized; leave it out.")
        return replace(whole, backbone=replace(whole.backbone, patch=patch, trainable=True))

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "every", "limit", "size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, must be at least 1.")
        if not 0 <= self.mask < 1 or not 0 <= self.drop <= 1:
            raise ConfigError(
                f"mask is {self.mask} and drop {self.drop}; shares must lie in 0..1, mask below 1."
            )
        if not 0 < self.zoom[0] <= self.zoom[1] <= 1:
            raise ConfigError(f"zoom is {self.zoom}, must rise within (0, 1].")
        if self.init is not None and self.teacher is not None:
            raise ConfigError("with init the student is its own teacher; leave teacher out.")
        token = self.model.stride
        if self.size % token:
            raise ConfigError(
                f"size is {self.size}, must be a multiple of {token}, the side of a token of "
                f"{self.preset}."
            )
