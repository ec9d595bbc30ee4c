"""The model's configuration as frozen dataclasses, and its presets.

Every ablation of the paper is a value here: frozen baseline `cgla.mode=off`, pair-blind
`cgla.mode=blind`, without delta `cgla.delta=none`, symmetric delta `cgla.delta=symmetric`, priors
`cpgr.prior=none|spatial|delta|spatial,delta|local`, selection `bscs.selection`, budget `bscs.k`.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from adadino.bands import RED_GREEN_BLUE, BandsConfig
from adadino.errors import ConfigError
from adadino.schema import added

SAT_MEAN, SAT_STD = (0.430, 0.411, 0.296), (0.213, 0.156, 0.143)
LVD_MEAN, LVD_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Prior = Literal["spatial", "delta", "local"]
LARGEST_DEPTH, LARGEST_WIDTH = 1000, 2**17
"""Larger models cannot be built in any reasonable time."""


def _check(ok: bool, message: str) -> None:
    if not ok:
        raise ConfigError(message)


def _check_largest(name: str, value: float) -> None:
    most = LARGEST_DEPTH if name in ("backbone.depth", "backbone.grid") else LARGEST_WIDTH
    _check(value <= most, f"{name} is {value}, must be at most {most}.")


@dataclass(frozen=True)
class BackboneConfig:
    """The vision transformer, DINOv3 or DINOv2, and the normalisation of its weights."""

    name: str = "vitl16"
    """The preset this backbone follows."""
    dim: int = 1024
    """Width D of a token."""
    depth: int = 24
    """Number of blocks."""
    heads: int = 16
    """Attention heads; dim / heads must be a multiple of 4 for the axial RoPE."""
    ffn: int = 4096
    """Hidden width of the feed-forward network."""
    gated: bool = False
    """SwiGLU instead of GELU (S+, H+ and 7B)."""
    qkv_bias: bool = True
    """Bias on queries and values; keys never have one."""
    patch: int = 16
    """Side of a patch in pixels."""
    registers: int = 4
    """Register tokens behind the class token."""
    rope_theta: float = 100.0
    """Base of the rotary periods."""
    norm_eps: float = 1e-5
    """Epsilon of every LayerNorm."""
    mean: tuple[float, float, float] = SAT_MEAN
    """Channel means the weights expect; set from the weights when they are loaded."""
    std: tuple[float, float, float] = SAT_STD
    """Channel standard deviations the weights expect."""
    trainable: bool = False
    """Train the backbone too. The paper never does; a small model of your own may."""
    weights: str | None = None
    """Where the weights come from (file, folder or hub id): a reference, never a copy."""
    fingerprint: str | None = None
    """Digest of the weights an adapter was trained on, checked when it is loaded again."""
    grid: int = added(0)
    """Side of the grid of learned positions, 37 in DINOv2; 0 for DINOv3's rotary positions."""
    grid_offset: float = added(0.0)
    """Added to a grid's sides before learned positions are scaled to it (`model/positions.py`)."""

    def __post_init__(self) -> None:
        for name in ("dim", "depth", "heads", "ffn", "patch"):
            value = getattr(self, name)
            _check(value >= 1, f"backbone.{name} is {value}, must be at least 1.")
            _check_largest(f"backbone.{name}", value)
        for name in ("registers", "grid", "grid_offset"):
            value = getattr(self, name)
            _check(value >= 0, f"backbone.{name} is {value}, must not be negative.")
            _check_largest(f"backbone.{name}", value)
        _check(self.grid != 1, "backbone.grid is 1, must be 0 (rotary positions) or at least 2.")
        _check(
            self.dim % (4 * self.heads) == 0,
            f"backbone.dim {self.dim} / heads {self.heads} must be a multiple of 4 (axial RoPE).",
        )
        for name in ("rope_theta", "norm_eps"):
            value = getattr(self, name)
            _check(value > 0, f"backbone.{name} is {value}, must be positive.")
        _check(min(self.std) > 0, f"backbone.std is {self.std}, must be positive.")

    @property
    def licence(self) -> str:
        """The licence of the released weights of this architecture, and whose they are."""
        if self.name == "tiny":
            return "Apache-2.0"
        name = "Apache-2.0" if self.grid else "DINOv3 License"
        return f"{name} (the weights are Meta's and are not part of adadino)"

    @property
    def prefix(self) -> int:
        """Tokens before the patches: class and registers."""
        return 1 + self.registers


@dataclass(frozen=True)
class CGLAConfig:
    """Change-aware gated local adaptation, Eq. 2-7."""

    mode: Literal["pair", "blind", "both", "off"] = "pair"
    """`pair` is the paper's; `blind` adapts each date on its own; `both` adds both updates; `off`
    is the frozen baseline."""
    delta: Literal["antisymmetric", "symmetric", "none"] = "antisymmetric"
    """Signs of the temporal residual: +/-, +/+, or no injection."""
    depths: tuple[int, ...] | None = None
    """0-based blocks after which CGLA sits; by default spread uniformly, ending at the last."""
    ratio: float = 0.5
    """Hidden width H as a share of the token width D."""
    groups: int = 8
    """Groups of every GroupNorm."""
    eta: float = 0.05
    """Initial residual scale."""
    gamma_delta: float = 0.05
    """Initial channel scale of the temporal residual."""
    gamma_self: float = added(0.0)
    """Initial channel scale of each date's own residual; the paper's is zero."""

    def __post_init__(self) -> None:
        _check(0 < self.ratio <= 4, f"cgla.ratio is {self.ratio}, must be above 0 and at most 4.")
        _check(self.groups >= 1, f"cgla.groups is {self.groups}, must be at least 1.")


@dataclass(frozen=True)
class BSCSConfig:
    """Batch-shared chunk selection, Eq. 8-12."""

    selection: Literal["learned", "static", "random", "bottom", "off"] = "learned"
    """How chunks are chosen: `learned` by the policy for every batch; `static` and `bottom` are the
    best and worst of `ranking`; `random` a fixed draw; `off` executes all of them."""
    chunks: int = 16
    """C: equal contiguous parts of the FFN's hidden width."""
    k: int = 6
    """Chunks that are executed. k = chunks is the dense FFN, without a policy pass; so is
    `selection=off`."""
    hidden: int = 256
    """Hidden width of the policy."""
    temperature: float = 1.0
    """tau of the straight-through probabilities."""
    ranking: tuple[tuple[int, ...], ...] | None = None
    """For `static` and `bottom`: one order of all chunks per block, most important first."""
    seed: int = 0
    """For `random`: the seed of the draw."""

    def __post_init__(self) -> None:
        for name in ("chunks", "hidden"):
            value = getattr(self, name)
            _check(value >= 1, f"bscs.{name} is {value}, must be at least 1.")
            _check_largest(f"bscs.{name}", value)
        _check(
            1 <= self.k <= self.chunks,
            f"bscs.k is {self.k}, must be between 1 and bscs.chunks = {self.chunks}.",
        )
        _check(self.temperature > 0, f"bscs.temperature is {self.temperature}, must be positive.")
        for block, order in enumerate(self.ranking or ()):
            _check(
                len(order) == self.chunks and sorted(order) == list(range(self.chunks)),
                f"bscs.ranking of block {block} is {list(order)}, must hold each chunk from 0 to "
                f"{self.chunks - 1} once.",
            )
        if self.selection == "off":
            object.__setattr__(self, "k", self.chunks)  # so that what is reported is what runs

    def budget(self, k: int | None) -> int:
        """How many chunks to execute: k, or by default the configuration's.

        Raises:
            ConfigError: There are fewer chunks, or the selection is off.
        """
        k = self.k if k is None else k
        _check(1 <= k <= self.chunks, f"k is {k}, must be between 1 and {self.chunks}.")
        _check(
            self.selection != "off" or k == self.chunks,
            f"k is {k}, but bscs.selection=off executes all {self.chunks} chunks: leave it out.",
        )
        return k


@dataclass(frozen=True)
class CPGRConfig:
    """CGLA-prior-guided refinement, Eq. 13-15."""

    width: int = 256
    """Channels of the difference pyramid and of every stage."""
    prior: tuple[Prior, ...] = ("spatial", "delta")
    """CGLA responses that guide the stages; empty for no prior."""
    alpha_prior: float = 0.05
    """Initial scale of the prior."""
    alpha_pred: float = 0.05
    """Initial scale of the guidance from the coarser prediction."""
    refiner: bool = True
    """Soft opening and closing of the finest prediction."""
    block: Literal["gated", "lineage"] = added("gated")
    """What ends a stage: `gated` is ours, `lineage` ChangeDINO's (`model/lineage.py`)."""

    def __post_init__(self) -> None:
        _check(
            self.width >= 8 and self.width % 8 == 0,
            f"cpgr.width is {self.width}, must be a positive multiple of 8.",
        )
        _check_largest("cpgr.width", self.width)
        _check(
            len(set(self.prior)) == len(self.prior),
            f"cpgr.prior {self.prior} repeats a name; leave one out.",
        )


@dataclass(frozen=True)
class StreamConfig:
    """Beyond the paper: a convolutional network beside the frozen transformer, for fine detail.

    Peers that are built on such a network (lite-unet, changedino), or on MobileSAM (faewnet,
    sam-distance), always have it, and take its `weights` from here.
    """

    name: Literal["none", "lite0"] = "none"
    """`lite0`: EfficientNet-lite0 up to stride 16, trained with the rest."""
    weights: str | None = None
    """Where its training starts: `imagenet` (the installed package's), a file, None for random."""


PALETTE = (
    "#0000ff", "#808080", "#008000", "#00ff00", "#800000", "#ff0000", "#ffa500", "#800080",
    "#00ffff", "#ffff00", "#8b4513", "#ff69b4", "#4682b4", "#556b2f", "#d2b48c", "#2f4f4f",
)  # fmt: skip
"""Colours of classes that come without any; the first six are SECOND's."""
MOST_CLASSES = 250
"""A pixel of a class map is a byte, and some of its values are taken."""


@dataclass(frozen=True)
class ClassesConfig:
    """Beyond the paper: what stands at a place at each date, so that a change is from and to."""

    names: tuple[str, ...] = ()
    """The classes, at least two; none is the paper's model, which tells change alone."""
    colours: tuple[str, ...] = ()
    """A colour for each, as #rrggbb; by default those of a palette."""

    def __post_init__(self) -> None:
        names = self.names
        _check(len(names) != 1, f"classes.names is {names[:1]}, must be at least two classes.")
        _check(
            len(names) <= MOST_CLASSES,
            f"classes.names has {len(names)} classes, must be at most {MOST_CLASSES}.",
        )
        for name in names:
            _check(
                bool(name.strip()) and name.isprintable(),
                f"classes.names holds {name!r}; give every class a name that can be printed.",
            )
        _check(
            len(set(names)) == len(names),
            f"classes.names {', '.join(names)} repeats a name; leave one out.",
        )
        if names and not self.colours:
            cycled = (PALETTE[index % len(PALETTE)] for index in range(len(names)))
            object.__setattr__(self, "colours", tuple(cycled))
        _check(
            len(self.colours) == len(names),
            f"classes.colours has {len(self.colours)} colours for {len(names)} classes; give one "
            "for each.",
        )
        for colour in self.colours:
            _check(
                re.fullmatch("#[0-9a-fA-F]{6}", colour) is not None,
                f"classes.colours holds {colour!r}, must be like #ff8800.",
            )

    @property
    def rgb(self) -> list[tuple[int, int, int]]:
        """The colours as red, green and blue, 0 to 255."""
        parts = (bytes.fromhex(colour[1:]) for colour in self.colours)
        return [(red, green, blue) for red, green, blue in parts]


NO_CLASSES = ClassesConfig()
"""What the paper's model tells: change alone."""


@dataclass(frozen=True)
class Config:
    """A whole model: AdaDINO, or a peer with those of the same settings that it takes."""

    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    cgla: CGLAConfig = field(default_factory=CGLAConfig)
    bscs: BSCSConfig = field(default_factory=BSCSConfig)
    cpgr: CPGRConfig = field(default_factory=CPGRConfig)
    order_invariant: bool = False
    """Beyond the paper: swapping the dates gives the same map, by construction."""
    stream: StreamConfig = field(default_factory=StreamConfig)
    scale: int = 2
    """The encoder sees the image enlarged by this factor: 256 pixels become 512."""
    bands: BandsConfig = added(RED_GREEN_BLUE)  # noqa: RUF009, it is frozen
    """Beyond the paper: more bands than red, green and blue."""
    enlarge: int = added(1)
    """Beyond the paper: the whole model sees the image enlarged by this factor, where pixels are
    coarser than the backbone was made for; `scale` comes on top."""
    peer: str | None = None
    """A comparator of `adadino.peers` instead of AdaDINO, by name. One that stands on the frozen
    backbone takes `backbone`, `cpgr.width`, `cpgr.refiner`, `cgla.depths` and `scale`."""
    classes: ClassesConfig = added(NO_CLASSES)  # noqa: RUF009, it declares a field

    def __post_init__(self) -> None:
        backbone, bscs = self.backbone, self.bscs
        _check(
            self.scale >= 1 and backbone.patch % self.scale == 0,
            f"scale is {self.scale}, must divide the patch side {backbone.patch}.",
        )
        _check(
            backbone.ffn % bscs.chunks == 0,
            f"bscs.chunks is {bscs.chunks}, must divide the FFN width {backbone.ffn}.",
        )
        if bscs.ranking is not None:
            _check(
                len(bscs.ranking) == backbone.depth,
                f"bscs.ranking has {len(bscs.ranking)} rows, must have one for each of the "
                f"{backbone.depth} blocks.",
            )
        if bscs.selection in ("static", "bottom"):
            _check(
                bscs.ranking is not None,
                f"bscs.selection={bscs.selection} needs bscs.ranking: train with selection=learned "
                "first, then take model.bscs.rank_chunks over the training set.",
            )
        _check(
            not (self.order_invariant and self.cgla.delta == "symmetric"),
            "order_invariant does not go with cgla.delta=symmetric, whose residual has no sign to "
            "follow the dates; take antisymmetric or none.",
        )
        _check(
            self.stream.weights is None or self.stream.name != "none" or self.peer is not None,
            f"stream.weights is {self.stream.weights}, but there is no stream; set "
            "stream.name=lite0, or leave the weights out.",
        )
        _check(
            self.stream.name == "none" or self.stride == 8,
            f"stream.name={self.stream.name} fits tokens of 8 pixels, not {self.stride}: its maps "
            "have the strides 4, 8, 16 of the pyramid's first three levels.",
        )
        _check(
            not self.classes.names or self.peer is None,
            f"{self.peer} tells change alone; leave classes.names out.",
        )
        _check(
            not (self.classes.names and self.bands.names),
            "a model of named bands tells change alone; leave classes.names or bands.names out.",
        )
        _check(1 <= self.enlarge <= 8, f"enlarge is {self.enlarge}, must be between 1 and 8.")
        _check(backbone.depth >= 4, f"backbone.depth is {backbone.depth}, must be at least 4.")
        depths = self.depths
        _check(len(depths) >= 4, f"cgla.depths {list(depths)} must be at least four.")
        _check(
            list(depths) == sorted(set(depths)) and depths[0] >= 0 and depths[-1] < backbone.depth,
            f"cgla.depths {list(depths)} must rise within 0..{backbone.depth - 1}.",
        )
        _check(
            self.cgla_hidden % self.cgla.groups == 0 and self.cgla_hidden > 0,
            f"cgla.ratio gives a hidden width of {self.cgla_hidden}, which must be a multiple of "
            f"cgla.groups = {self.cgla.groups}.",
        )

    @property
    def depths(self) -> tuple[int, ...]:
        """The adapted depths, uniformly spaced: four below 16 blocks, else eight."""
        if self.cgla.depths is not None:
            return self.cgla.depths
        depth = self.backbone.depth
        count = 4 if depth < 16 else 8
        return tuple(round((i + 1) * depth / count) - 1 for i in range(count))

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Positions in `depths` of the four groups, shallow to deep: P2, P3, P4, P5."""
        n = len(self.depths)
        edges = [round(i * n / 4) for i in range(5)]
        return tuple(tuple(range(a, b)) for a, b in pairwise(edges))

    @property
    def taps(self) -> tuple[int, ...]:
        """Blocks whose output feeds the pyramid: the last depth of each group."""
        return tuple(self.depths[group[-1]] for group in self.groups)

    @property
    def cgla_hidden(self) -> int:
        """Hidden width H of CGLA."""
        return int(self.cgla.ratio * self.backbone.dim)

    @property
    def stride(self) -> int:
        """Input pixels per token: what height and width are padded to."""
        return self.backbone.patch // self.scale


_VIT = {
    "vits16": BackboneConfig("vits16", dim=384, depth=12, heads=6, ffn=1536),
    "vits16plus": BackboneConfig("vits16plus", dim=384, depth=12, heads=6, ffn=1536, gated=True),
    "vitb16": BackboneConfig("vitb16", dim=768, depth=12, heads=12, ffn=3072),
    "vitl16": BackboneConfig("vitl16"),
    "vith16plus": BackboneConfig("vith16plus", dim=1280, depth=32, heads=20, ffn=5120, gated=True),
    "vit7b16": BackboneConfig(
        "vit7b16", dim=4096, depth=40, heads=32, ffn=8192, gated=True, qkv_bias=False
    ),
}

_DINOV2 = {
    "dinov2-vits14": BackboneConfig(dim=384, depth=12, heads=6, ffn=1536),
    "dinov2-vitb14": BackboneConfig(dim=768, depth=12, heads=12, ffn=3072),
    "dinov2-vitl14": BackboneConfig(dim=1024, depth=24, heads=16, ffn=4096),
    "dinov2-vitg14": BackboneConfig(dim=1536, depth=40, heads=24, ffn=4096, gated=True),
}


def _dinov2(name: str, registers: int) -> BackboneConfig:
    """A backbone of DINOv2 as Meta released it; `patch=16` resizes its patch embedding."""
    return dataclasses.replace(
        _DINOV2[name],
        name=f"{name}-reg4" if registers else name,
        patch=14,
        registers=registers,
        norm_eps=1e-6,
        mean=LVD_MEAN,
        std=LVD_STD,
        grid=37,
        grid_offset=0.0 if registers else 0.1,
    )


PRESETS: dict[str, Config] = {
    "tiny": Config(
        backbone=BackboneConfig(
            "tiny", dim=192, depth=12, heads=3, ffn=768, mean=LVD_MEAN, std=LVD_STD
        ),
        bscs=BSCSConfig(hidden=64),
        cpgr=CPGRConfig(width=64),
    ),
    # Only ViT-L and 7B exist with SAT-493M weights; the others were trained on LVD-1689M.
    **{
        name: Config(
            backbone=vit
            if name in ("vitl16", "vit7b16")
            else dataclasses.replace(vit, mean=LVD_MEAN, std=LVD_STD)
        )
        for name, vit in _VIT.items()
    },
    **{
        vit.name: Config(backbone=vit)
        for vit in (_dinov2(name, registers) for name in _DINOV2 for registers in (0, 4))
    },
}


def preset(name: str) -> Config:
    """Return a preset by its name in `PRESETS`.

    Raises:
        ConfigError: There is no such preset.
    """
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}; there are {', '.join(PRESETS)}.")
    return PRESETS[name]
