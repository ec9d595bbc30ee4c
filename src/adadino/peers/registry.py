"""The comparators as data: what each is, where it comes from, how its authors trained it.

`PEERS` are built here, one file each. This module imports no model and no torch. Learning rates are
the ones published for each model, in its paper or with its released code. Parameters are counted as
published, for the Mambas and ChangeTitans as their released code gives them, and `idle` says how
many of those never run and do not exist here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from adadino.errors import ConfigError

if TYPE_CHECKING:
    from adadino.peers.base import Peer


@dataclass(frozen=True)
class Recipe:
    """How a model was trained by its authors."""

    optimizer: str
    """adam, adamw or sgd."""
    learning_rate: float
    weight_decay: float | None = None
    """Weight decay; None where it is not stated."""
    momentum: float = 0.0
    """Momentum of sgd."""
    schedule: str = ""
    """The schedule in words; empty where it is not stated."""
    train: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What else `adadino train` takes from it: batch, epochs, and the schedule as settings."""

    def settings(self, told: Collection[str]) -> dict[str, Any]:
        """The recipe as settings of a run, but for those that the user told otherwise.

        An optimiser's learning rate means nothing to another one: with another optimiser, nothing
        of the published one is left.
        """
        optimiser: dict[str, Any] = {"optimizer": self.optimizer, "lr": self.learning_rate}
        if self.weight_decay is not None:
            optimiser["weight_decay"] = self.weight_decay
        if self.momentum:
            optimiser["momentum"] = self.momentum
        own = {**({} if "optimizer" in told else optimiser), **self.train}
        if "batch" in own and not {"batch", "accumulate"}.isdisjoint(told):
            del own["batch"], own["accumulate"]
        return {name: value for name, value in own.items() if name not in told}


@dataclass(frozen=True)
class PeerSpec:
    """One comparator: what it is, where it comes from, how to build it."""

    name: str
    title: str
    """The name as its authors write it."""
    description: str
    citation: str
    home: str
    """Module and class, imported when built."""
    options: tuple[Any, ...] = ()
    """Positional arguments of the class."""
    parameters: float | None = None
    """Published number of parameters, to the digits that were published."""
    idle: int = 0
    """Parameters in the published count that no forward pass uses, or that are constants; ours does
    not have them."""
    recipe: Recipe | None = None
    """The published training recipe; None for what is ours alone."""
    backbone: bool = False
    """Stands on AdaDINO's frozen backbone: takes a configuration and a `Backbone`."""
    decoder: bool = True
    """Decodes with our pyramid and CPGR, if it stands on the backbone."""
    trunk: Literal["lite0", "mobile-sam"] | None = None
    """A pretrained network that it stands on; `stream.weights` says where its weights are."""
    trained: bool = True
    """Whether there is something to train; if not, the model is its weights."""
    f1: dict[str, float] = dataclasses.field(default_factory=dict)
    """F1 of the original by benchmark, as the AdaDINO paper quotes it in Table 1."""

    @property
    def builder(self) -> type[Peer]:
        """The class, which takes `config` and `backbone` if it stands on the frozen backbone."""
        module, _, name = self.home.rpartition(".")
        model: type[Peer] = getattr(import_module(f"adadino.peers.{module}"), name)
        return model


def _quoted(
    sysu: float | None, whu: float | None, levir: float | None, levir_plus: float | None
) -> dict[str, float]:
    given = {"sysu-cd": sysu, "whu-cd": whu, "levir-cd": levir, "levir-cd+": levir_plus}
    return {name: f1 for name, f1 in given.items() if f1 is not None}


_FC = "R. Caye Daudt, B. Le Saux, A. Boulch, ICIP 2018"


def _times(batch: int, epochs: int, decay: str, **more: Any) -> dict[str, Any]:
    """Settings of a run: pairs per update, epochs, and how the learning rate falls."""
    return {"batch": batch, "accumulate": 1, "epochs": epochs, "decay": decay, "min_lr": 0.0} | more


_FC_RECIPE = Recipe(
    "adam",
    1e-3,
    1e-4,
    schedule="times 0.95 after each epoch",
    train=_times(32, 50, "exponential", decay_factor=0.95),
)
_BIT_RECIPE = Recipe(
    "sgd", 0.01, 5e-4, momentum=0.9, schedule="linear to zero", train=_times(8, 200, "linear")
)

_ALL = (
    PeerSpec(
        "fc-ef",
        "FC-EF",
        "A small U-Net over the six channels of both dates.",
        _FC,
        "fc.FCEarlyFusion",
        parameters=1.35e6,
        recipe=_FC_RECIPE,
        f1=_quoted(75.81, 84.89, 88.90, 76.41),
    ),
    PeerSpec(
        "fc-siam-diff",
        "FC-Siam-Diff",
        "A small Siamese U-Net; its skip connections carry the difference of the dates.",
        _FC,
        "fc.FCSiamese",
        ("difference",),
        parameters=1.35e6,
        recipe=_FC_RECIPE,
        f1=_quoted(75.79, 87.67, 89.69, 79.23),
    ),
    PeerSpec(
        "fc-siam-conc",
        "FC-Siam-Conc",
        "A small Siamese U-Net; its skip connections carry both dates.",
        _FC,
        "fc.FCSiamese",
        ("concatenation",),
        parameters=1.55e6,
        recipe=_FC_RECIPE,
        f1=_quoted(75.18, 85.83, 89.89, 79.09),
    ),
    PeerSpec(
        "snunet",
        "SNUNet-CD/32",
        "A densely connected Siamese U-Net++ with ensemble channel attention.",
        "S. Fang, K. Li, J. Shao, Z. Li, GRSL 2022",
        "snunet.SNUNet",
        parameters=12.03e6,
        recipe=Recipe(
            "adamw",
            1e-3,
            0.01,
            schedule="halved every 8 epochs",
            train=_times(16, 100, "exponential", decay_factor=0.5, decay_every=8),
        ),
        f1=_quoted(73.14, 87.70, 88.59, 78.56),
    ),
    PeerSpec(
        "bit",
        "BIT",
        "A transformer over four semantic tokens of each date, on ResNet-18 (random, as the code "
        "that was released leaves it; the published count includes ImageNet's unused classifier).",
        "H. Chen, Z. Qi, Z. Shi, TGRS 2022",
        "bit.BIT",
        parameters=3.55e6,
        idle=513_000,
        recipe=_BIT_RECIPE,
        f1=_quoted(79.62, 90.01, 90.03, 80.95),
    ),
    PeerSpec(
        "changeformer",
        "ChangeFormer (V6)",
        "A Siamese Mix Transformer with a difference module at each of four scales (random here, "
        "ADE20K weights in the paper).",
        "W. G. C. Bandara, V. M. Patel, IGARSS 2022",
        "changeformer.ChangeFormer",
        parameters=41.03e6,
        recipe=Recipe(
            "adamw", 1e-4, 0.01, schedule="linear to zero", train=_times(16, 200, "linear")
        ),
        f1=_quoted(None, 90.30, 88.83, 77.54),
    ),
    PeerSpec(
        "tinycd",
        "TinyCD",
        "Masks from mixed channels and a pixelwise MLP, on the first blocks of EfficientNet-b4 "
        "(random here, ImageNet in the paper).",
        "A. Codegoni, G. Lombardi, A. Ferrari, Neural Computing and Applications 2023",
        "tinycd.TinyCD",
        parameters=0.285e6,
        recipe=Recipe(
            "adamw", 3.568e-3, 9.45e-3, schedule="cosine to zero", train=_times(8, 100, "cosine")
        ),
    ),
    PeerSpec(
        "changemamba",
        "ChangeMamba (MambaBCD-Tiny)",
        "VMamba for each date, and scans through both dates at four scales (random here, ImageNet "
        "in the paper); the selective scan needs no compiled kernel.",
        "H. Chen et al., TGRS 2024",
        "changemamba.ChangeMamba",
        parameters=32.61e6,
        recipe=Recipe(
            "adamw", 1e-4, 5e-3, train={"batch": 16, "accumulate": 1}, schedule="20,000 updates"
        ),
        f1=_quoted(83.11, 92.55, 90.16, 82.68),
    ),
    PeerSpec(
        "rs-mamba",
        "RS-Mamba (RSM-CD, tiny)",
        "A VMamba that scans in eight directions, from scratch as released, and a U-Net decoder.",
        "S. Zhao et al., TGRS 2024",
        "rs_mamba.RSMamba",
        parameters=51.95e6,
        recipe=Recipe("adamw", 1e-3, 1e-3, schedule="1,000 updates of warm-up, then constant"),
        f1=_quoted(78.99, 91.97, 90.82, 81.07),
    ),
    PeerSpec(
        "cdmamba",
        "CDMamba",
        "Scans in two directions beside convolutions; the dates gate one another at two scales "
        "(the published count includes gates of two more, which are never run).",
        "H. Zhang et al., TGRS 2025",
        "cdmamba.CDMamba",
        parameters=11.91e6,
        idle=1_567_880,
        recipe=Recipe("adam", 1e-4, schedule="linear to zero", train=_times(6, 200, "linear")),
        f1=_quoted(79.07, 91.10, 90.75, 81.77),
    ),
    PeerSpec(
        "st-mamba",
        "ST-Mamba-style",
        "VMamba, and dates whose common background is unified at four scales (the authors' code "
        "cannot be read: the choices in st_mamba.py are ours).",
        "J. Zhao et al., TGRS 2025",
        "st_mamba.STMamba",
        f1=_quoted(83.39, 94.72, 91.92, 84.01),
    ),
    PeerSpec(
        "changetitans",
        "ChangeTitans",
        "Blocks with neural memories beside a pyramid, and dates that attend to one another "
        "(random here, ImageNet in the paper; the released count has memories' networks twice).",
        "Z. Yang et al., TGRS 2025",
        "changetitans.ChangeTitans",
        parameters=27.15e6,
        idle=1_705_984,
        recipe=Recipe(
            "adam",
            1e-4,
            1e-4,
            schedule="20 epochs of warm-up, then cosine",
            train=_times(8, 200, "cosine"),
        ),
        f1=_quoted(83.24, None, 91.52, 86.37),
    ),
    PeerSpec(
        "faewnet",
        "FAEWNet-style",
        "MobileSAM's encoder (ViT-L's in the paper), adapted by low rank and in the Fourier "
        "domain; dates are warped to one another.",
        "Y.-C. Li et al., TGRS 2025",
        "faewnet.FAEWNet",
        recipe=Recipe(
            "adamw",
            4e-4,
            0.05,
            schedule="5 epochs of warm-up, then cosine",
            train=_times(8, 100, "cosine"),
        ),
        trunk="mobile-sam",
        f1=_quoted(None, 94.99, 92.41, None),
    ),
    PeerSpec(
        "sam-distance",
        "SAM distance (AnyChange-style)",
        "The angle between the dates' MobileSAM features; nothing is trained.",
        "Z. Zheng et al., NeurIPS 2024; C. Zhang et al. 2023",
        "sam_distance.SamDistance",
        trunk="mobile-sam",
        trained=False,
    ),
    PeerSpec(
        "unet",
        "U-Net",
        "A plain U-Net over the six channels of both dates, from scratch (on a ResNet-50 with "
        "ImageNet weights in the paper).",
        "I. Corley, C. Robinson, A. Ortiz, ICLR ML4RS workshop 2024",
        "unet.UNet",
        recipe=_BIT_RECIPE,
    ),
    PeerSpec(
        "lite-unet",
        "Siamese U-Net, EfficientNet-lite0",
        "A Siamese U-Net on EfficientNet-lite0, with ImageNet weights if they are given.",
        "ours, after Corley et al. 2024; M. Tan, Q. V. Le, ICML 2019",
        "lite_unet.LiteUNet",
        trunk="lite0",
    ),
    PeerSpec(
        "changedino",
        "ChangeDINO-style",
        "Frozen DINOv3 features beside a convolutional stream, merged at four scales.",
        "C.-H. Cheng, C.-C. Hsu, ISPRS Annals 2026",
        "changedino.ChangeDINO",
        recipe=Recipe("adamw", 5e-4),
        backbone=True,
        trunk="lite0",
        f1=_quoted(84.70, 94.88, 92.31, 86.99),
    ),
    PeerSpec(
        "peftcd",
        "PeftCD-style",
        "Low-rank adaptation (LoRA, rank 8) of the frozen DINOv3's attention.",
        "S. Dong et al., JSTARS 2026",
        "peftcd.PeftCD",
        recipe=Recipe("adamw", 3e-4, schedule="warm-up, then down to a tenth"),
        backbone=True,
        f1=_quoted(84.93, 95.86, 92.25, 85.89),
    ),
    PeerSpec(
        "ban",
        "BAN-style",
        "A Mix Transformer b0 (random here, ImageNet in the paper) that reads the frozen DINOv3 "
        "over bridges.",
        "K. Li, X. Cao, D. Meng, TGRS 2024",
        "ban.BAN",
        recipe=Recipe(
            "adamw", 1e-4, 1e-4, schedule="warm-up, linear to zero; its decoder at ten times this"
        ),
        backbone=True,
        decoder=False,
        f1=_quoted(None, 94.49, 91.70, None),
    ),
    PeerSpec(
        "ttp",
        "TTP-style",
        "LoRA of rank 16 and time-travelling gates between the blocks of the frozen DINOv3.",
        "K. Chen et al., IGARSS 2024",
        "ttp.TTP",
        recipe=Recipe("adamw", 4e-4, 0.05, schedule="5 epochs of warm-up, then cosine"),
        backbone=True,
    ),
    PeerSpec(
        "tome",
        "ToMe-style",
        "The frozen baseline with similar tokens merged in every block: the rival to chunk "
        "selection.",
        "D. Bolya et al., ICLR 2023",
        "tome.ToMe",
        backbone=True,
    ),
)

PEERS: dict[str, PeerSpec] = {spec.name: spec for spec in _ALL}
"""The comparators by name, in the order of the tables."""


FREE = {
    spec.name: spec
    for spec in (
        PeerSpec(
            "cva",
            "CVA",
            "The length of the difference of z-scored bands, parted by Otsu's threshold.",
            "W. A. Malila, LARS 1980",
            "free.ChangeVector",
        ),
        PeerSpec(
            "irmad",
            "IR-MAD",
            "Iteratively reweighted canonical correlations of the dates, parted by Otsu's "
            "threshold.",
            "A. A. Nielsen, IEEE TIP 2007",
            "free.IRMAD",
        ),
    )
}
"""Peers that need no training, for any bands: every command that predicts takes them by name."""


def find_peer(name: str) -> PeerSpec:
    """A comparator by its name.

    Raises:
        ConfigError: There is no such peer.
    """
    if name in FREE:
        return FREE[name]
    if name not in PEERS:
        raise ConfigError(f"unknown peer {name!r}; there are {', '.join([*PEERS, *FREE])}.")
    return PEERS[name]
