"""Where the model runs."""

from __future__ import annotations

import torch

from adadino.errors import ConfigError


def choose_device(name: str = "auto") -> torch.device:
    """Return the device by name; `auto` takes CUDA, then MPS, then the CPU.

    Raises:
        ConfigError: There is no such device here.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).tolist()  # not only described, as on `meta`, but computed
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"there is no device {name!r} here; use --device auto or cpu.") from error
    return device
