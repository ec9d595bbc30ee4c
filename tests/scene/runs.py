"""Scenes for the tests, and runs that stop at a chosen moment so that they can be killed there."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import rasterio
import torch
from rasterio.transform import from_origin

import adadino.scene.predict as story
from adadino.model.adadino import AdaDINO
from adadino.scene import SceneOptions, predict_scene
from tests.conftest import SMALL, randomise

NAMES = {"output": "c.tif", "probability": "p.tif", "vector": "v.gpkg"}


def a_model():
    torch.manual_seed(0)
    return randomise(AdaDINO(SMALL), 0.35).eval()


def run(scene, model, folder, *, resume=False, overwrite=False, progress=None, **options):
    targets = {role: Path(folder) / name for role, name in NAMES.items()}
    return predict_scene(
        *scene,
        model,
        **targets,
        options=SceneOptions(**({"tile": 64, "overlap": 16} | options)),
        device="cpu",
        resume=resume,
        overwrite=overwrite,
        progress=progress,
    )


def run_and_hang(scene, folder, moment, flag):
    """Predict until a moment: after so many forward passes, or when a step begins; then wait."""

    def hang(*arguments, **options):
        Path(flag).touch()
        time.sleep(600)

    model, calls = a_model(), []
    if isinstance(moment, int):
        forward = model.forward

        def counted(*arguments, **options):
            calls.append(1)
            return hang() if len(calls) > moment else forward(*arguments, **options)

        model.forward = counted
    else:
        setattr(story, moment, hang)
    run(scene, model, folder)


def two_dates(folder, side=150):
    draw = np.random.default_rng(1)
    paths = []
    for name in ("before.tif", "after.tif"):
        paths.append(folder / name)
        with rasterio.open(
            paths[-1], "w", driver="GTiff", width=side, height=side - 30, count=3, dtype="uint8",
            crs="EPSG:32633", transform=from_origin(400000, 5000000, 0.5, 0.5),
        ) as raster:  # fmt: skip
            raster.write(draw.integers(0, 256, (3, side - 30, side), dtype="uint8"))
    return paths


def read(path):
    with rasterio.open(path) as raster:
        return raster.read(1)


def rewrite(source, target, change, **profile):
    """Copy a raster with other values."""
    with rasterio.open(source) as raster:
        data, new = change(raster.read()), raster.profile | profile
    with rasterio.open(target, "w", **new) as raster:
        raster.write(data)
    return target


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}
