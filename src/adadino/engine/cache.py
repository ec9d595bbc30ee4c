"""Where compiled kernels are kept between processes.

`$ADADINO_CACHE`, or `adadino` in the user's cache folder. Whoever has set PyTorch's or Triton's own
variables (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR) keeps their choice. Both libraries check the
versions and the device themselves, so a stale entry is compiled again, never used.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def cache_folder() -> Path:
    """The folder, whether it exists yet or not."""
    chosen = os.environ.get("ADADINO_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "adadino"


def keep_compiled() -> None:
    """Have PyTorch and Triton keep what they compile; call before the first compilation.

    Where the folder cannot be written, they use their own temporary folders.
    """
    folder = cache_folder()
    for name, part in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        with suppress(OSError):
            (folder / part).mkdir(parents=True, exist_ok=True)
            if os.access(folder / part, os.W_OK):
                os.environ.setdefault(name, str(folder / part))
    # PyTorch's caches are on by default. They are not switched on here, because that would import
    # the compiler, which takes seconds and which an engine that is not compiled never needs.
