from __future__ import annotations

import os

import torch

# Triton decides when a kernel is defined whether it will be interpreted: set before any import.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
