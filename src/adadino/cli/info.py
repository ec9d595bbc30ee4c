"""`adadino info`: what a model is made of and what it costs, beside the paper's figures."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adadino.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from adadino.config import Config

DINOV3 = "DINOv3 License (the weights are Meta's and are not part of adadino)"


def command(
    model: Annotated[
        str | None, typer.Argument(help="A checkpoint folder or file, or a bundled model's name.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A preset: tiny, vits16, vits16plus, vitb16, vitl16, ...")
    ] = None,
    k: Annotated[int | None, typer.Option(help="FFN chunks to execute, of 16.")] = None,
    size: Annotated[int, typer.Option(min=1, help="Side of the input in pixels.")] = 256,
    backbone: Annotated[
        str | None, typer.Option(help="Backbone weights to look into: file, folder or hub id.")
    ] = None,
    json: Json = False,
) -> None:
    """Print a model's parameters by component, GFLOPs, licence, normalisation and next command."""
    card = describe(model, preset, k, size, backbone)
    if json:
        print_json(card)
    else:
        show(card)


def describe(
    model: str | None, preset: str | None, k: int | None, size: int, backbone: str | None = None
) -> dict[str, Any]:
    """Collect what `info` prints."""
    import torch

    from adadino import config as presets
    from adadino import paper, schema
    from adadino.errors import ConfigError
    from adadino.model.adadino import AdaDINO
    from adadino.model.checkpoint import read_settings
    from adadino.model.weights import read_backbone
    from adadino.profiling import gflops

    if model is not None and preset is not None:
        raise ConfigError("give a model or --preset, not both.")
    if model is not None and model not in presets.PRESETS:
        config = schema.build(presets.Config, read_settings(model)["model"], "model")
        name = model
    else:
        chosen = preset or model
        if chosen is None and backbone is not None:
            chosen = read_backbone(backbone).config.name  # the preset these weights are
        name = chosen or "tiny"
        config = presets.preset(name)
    weights = None
    if backbone is not None:
        weights = read_backbone(backbone, config.backbone)
        config = dataclasses.replace(config, backbone=weights.config)
    if k is not None:
        config = dataclasses.replace(config, bscs=dataclasses.replace(config.bscs, k=k))
    with torch.device("meta"):
        network = AdaDINO(config)
    params = {part: _count(module) for part, module in network.components().items()}
    params["total"] = sum(params.values())
    params["trainable"] = sum(p.numel() for p in network.parameters() if p.requires_grad)
    params["frozen"] = params["total"] - params["trainable"]
    standard = preset_of(config) == "vitl16" and size == 256
    return {
        "name": name,
        "backbone": config.backbone.name,
        "params": params,
        "k": config.bscs.k,
        "chunks": config.bscs.chunks,
        "size": size,
        "gflops": round(gflops(config, size=size), 3),
        "weights": {
            "source": config.backbone.weights,
            "fingerprint": config.backbone.fingerprint,
            "layout": weights.layout if weights is not None else None,
        },
        "paper": {
            "params": paper.PARAMETERS if standard else None,
            "gflops": paper.GFLOPS.get(config.bscs.k) if standard else None,
        },
        "normalization": {"mean": config.backbone.mean, "std": config.backbone.std},
        "licence": {
            "code": "Apache-2.0",
            "backbone": "Apache-2.0" if config.backbone.name == "tiny" else DINOV3,
        },
        "depths": config.depths,
        "taps": config.taps,
        "next": _next(model if model not in presets.PRESETS else None, name),
    }


def preset_of(config: Config) -> str | None:
    """The preset a configuration equals but for the budget and where its weights lie."""
    from adadino.config import PRESETS

    name = config.backbone.name
    if name not in PRESETS:
        return None
    standard = PRESETS[name]
    same_backbone = dataclasses.replace(
        config.backbone,
        weights=None,
        fingerprint=None,
        mean=standard.backbone.mean,
        std=standard.backbone.std,
    )
    same = dataclasses.replace(
        config, backbone=same_backbone, bscs=dataclasses.replace(config.bscs, k=standard.bscs.k)
    )
    return name if same == standard else None


def show(card: dict[str, Any]) -> None:
    """Print the card for people."""
    quoted = card["paper"]["params"] or {}
    rows: list[tuple[str, str, str]] = [
        (part, f"{count:,}", f"{quoted[part] / 1e6:.2f}M" if part in quoted else "")
        for part, count in card["params"].items()
    ]
    gflops_paper = card["paper"]["gflops"]
    title = f"GFLOPs, one {card['size']} x {card['size']} pair, k={card['k']}"
    rows.append((title, f"{card['gflops']:,.2f}", f"{gflops_paper:,.2f}" if gflops_paper else ""))
    print_table(f"{card['name']} ({card['backbone']})", ("", "ours", "paper"), rows)
    mean, std = card["normalization"]["mean"], card["normalization"]["std"]
    typer.echo(f"CGLA after blocks {_list(card['depths'])}; pyramid from {_list(card['taps'])}")
    typer.echo(f"normalisation: mean {_list(mean)}; std {_list(std)}")
    weights = card["weights"]
    if weights["source"] is not None:
        layout = f"{weights['layout']} layout, " if weights["layout"] else ""
        typer.echo(f"weights: {weights['source']} ({layout}{weights['fingerprint']})")
    typer.echo(f"code: {card['licence']['code']}; backbone weights: {card['licence']['backbone']}")
    typer.echo(f"next: {card['next']}")


def _list(values: Any) -> str:
    return ", ".join(str(v) for v in values)


def _count(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())


def _next(model: str | None, name: str) -> str:
    if model is not None:
        return f"adadino evaluate {model} --data DIR --split test"
    weights = "" if name == "tiny" else " --model.backbone.weights FILE"
    return f"adadino train --preset {name} --data DIR{weights}"
