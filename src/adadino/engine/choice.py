"""Which form of a model predicts: by default the engine on a GPU, the model itself elsewhere.

The default on a GPU departs from the paper, which computes in fp32: the engine runs in bf16, with
the tanh form of GELU. `engine="off"` gives the paper's way. On a CPU nothing is replaced unless
asked for, so that results stay the same byte for byte. The decoder is not compiled here: scenes and
the page have batches of many shapes, and compiling each would take longer than a scene does.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Literal

import torch

from adadino.engine.model import computes_bf16, optimize, runs
from adadino.engine.ops import has_triton
from adadino.engine.ops.block import layer_norm
from adadino.errors import AdaDINOWarning, ConfigError
from adadino.model.detector import Detector

Choice = Literal["auto", "off", "bf16", "fp8", "int8"]


def for_inference(model: Detector, choice: Choice = "auto") -> Detector:
    """The form of a model to predict with, on the device where it is.

    Args:
        model: AdaDINO, a peer, or an engine, which is returned as it is.
        choice: `auto` takes the engine in bf16 on a GPU that computes in it, else the model as it
            is; `off` always takes the model as it is; a precision takes the engine in it.

    Raises:
        ConfigError: A precision was asked for that this model or device does not have.
    """
    if choice == "off" or model.precision is not None:
        return model
    device = model.device
    if choice == "auto":
        able = device.type == "cuda" and computes_bf16(device) and has_triton()
        if not able or model.bscs is None or not runs(model.config):
            return model
        if (problem := kernel_problem(device)) is not None:
            text = f"the inference engine does not run here, the plain model does: {problem}"
            warnings.warn(text, AdaDINOWarning, stacklevel=2)
            return model
        return optimize(model, compile=False)
    if model.bscs is None:
        raise ConfigError(
            f"the engine runs AdaDINO, this model is the peer {model.config.peer}; use engine auto "
            f"or off instead of {choice}."
        )
    if choice == "fp8" and device.type != "cuda":
        raise ConfigError(f"engine fp8 needs an NVIDIA GPU, the model is on {device}; use bf16.")
    return optimize(model, precision=choice, compile=False)


@cache
def kernel_problem(device: torch.device) -> str | None:
    """Why the kernels do not run on a device; None if they do.

    Triton compiles on the user's machine and cannot without a C compiler, for example.
    """
    ones = torch.ones(16, device=device)
    try:
        rows = layer_norm(ones.view(1, 16), shift=ones, weight=ones, bias=ones, eps=1e-5)
        found = bool((rows.values == 1).all())
    except Exception as error:  # Triton's, the driver's or the compiler's: all mean the same
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None if found else "a kernel gives a wrong result"
