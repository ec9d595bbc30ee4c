"""What an exported file says about itself, as JSON values under plain names.

The six-band variant also has the names that QGIS's Deepness plugin reads. Its documentation calls
the side of a tile `tiles_size`, its code reads `tile_size`: both are written. It divides bytes by
255 and then standardises; the graph normalises by itself, so the plugin is told to leave the values
alone.
"""

from __future__ import annotations

import json
from typing import Any

import adadino
from adadino.model.detector import Detector
from adadino.model.weights import fingerprint
from adadino.runtime.exported import FORMAT
from adadino.scene.options import SceneOptions

CLASSES = ("unchanged", "changed")
CONTAINS = "code and trained parts Apache-2.0; contains backbone weights under the {}"


def metadata_of(model: Detector, **facts: Any) -> dict[str, Any]:
    """Collect the metadata of a model.

    Args:
        model: The model before it was changed for export.
        facts: What depends on the export: selection, k, precision, tolerance.
    """
    config = model.config
    ours = model.dino is None or config.backbone.name == "tiny"
    theirs = "Apache License 2.0 (DINOv2)" if config.backbone.grid else "DINOv3 License"
    return {
        "adadino_format": FORMAT,
        "adadino_version": adadino.__version__,
        "peer": config.peer,
        "fingerprint": fingerprint(model.state_dict()),
        "backbone": None if model.dino is None else config.backbone.name,
        "backbone_weights": None if model.dino is None else config.backbone.fingerprint,
        "licence": "Apache-2.0" if ours else CONTAINS.format(theirs),
        "inputs": "RGB, two dates, float32 from 0 (black) to 1 (white)",
        "value_scale": [0, 1],
        "normalization": {**model.normalize.values, "inside": True},
        "enlarged": 1 if model.dino is None else config.scale,
        "classes": list(CLASSES),
        "threshold": SceneOptions.threshold,
        "stride": model.stride,
        "tile": SceneOptions.tile,
        "domain": None if model.domain is None else model.domain.as_card(),
        **facts,
    }


def deepness(*, tile: int, resolution: float) -> dict[str, Any]:
    """The names Deepness reads.

    Args:
        tile: Side of a tile in pixels.
        resolution: Centimetres per pixel of the images the model is for.
    """
    return {
        "model_type": "Segmentor",
        "class_names": {"0": "_background", "1": "change"},
        "resolution": resolution,
        "tile_size": tile,
        "tiles_size": tile,
        "tiles_overlap": round(100 * SceneOptions.overlap / SceneOptions.tile),  # per cent
        "seg_thresh": SceneOptions.threshold,
        "seg_small_segment": 0,
        "standardization_mean": [0.0] * 6,
        "standardization_std": [1.0] * 6,
    }


def as_text(metadata: dict[str, Any]) -> dict[str, str]:
    """Every value as JSON."""
    return {name: json.dumps(value) for name, value in metadata.items()}
