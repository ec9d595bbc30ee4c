from __future__ import annotations

import builtins
import dataclasses
import os

import pytest
import torch
from hypothesis import settings

from adadino.config import BackboneConfig, BSCSConfig, Config, CPGRConfig

# Triton decides when it is imported whether kernels will be interpreted: set before anything that
# is collected can import it.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Two test processes on two cores: more threads each would only wait for one another.
torch.set_num_threads(1)

# How long an example takes says more about the machine than about the code.
settings.register_profile("adadino", deadline=None)
settings.load_profile("adadino")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _no_flushing():
    """Files are not forced to the disk: no test cuts the power, and thousands are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


SMALL = Config(
    backbone=BackboneConfig("small", dim=32, depth=4, heads=2, ffn=64, registers=2),
    bscs=BSCSConfig(chunks=8, k=3, hidden=16),
    cpgr=CPGRConfig(width=16),
)


@pytest.fixture
def small() -> Config:
    """A model that runs in milliseconds and has every part of the large one."""
    return SMALL


def with_bscs(config: Config, **changes: object) -> Config:
    return dataclasses.replace(config, bscs=dataclasses.replace(config.bscs, **changes))


def with_cgla(config: Config, **changes: object) -> Config:
    return dataclasses.replace(config, cgla=dataclasses.replace(config.cgla, **changes))


def with_cpgr(config: Config, **changes: object) -> Config:
    return dataclasses.replace(config, cpgr=dataclasses.replace(config.cpgr, **changes))


def with_backbone(config: Config, **changes: object) -> Config:
    return dataclasses.replace(config, backbone=dataclasses.replace(config.backbone, **changes))


def randomise(module: torch.nn.Module, scale: float = 0.3) -> torch.nn.Module:
    """Fill every parameter with noise, so that nothing hides behind an initial zero or one."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return module


@pytest.fixture
def without_rasterio(monkeypatch):
    """As where the geo extra is not installed."""
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "rasterio":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
