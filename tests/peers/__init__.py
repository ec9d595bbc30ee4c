import pytest

from adadino.peers import PEERS

NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] if name in ("rs-mamba", "cdmamba") else [])
    for name in PEERS
]
"""Every peer; two that take seconds are left to the slow tests. ChangeMamba shares their scan."""
