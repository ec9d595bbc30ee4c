import pytest

from adadino.peers import PEERS

SLOW = ("rs-mamba", "cdmamba", "changetitans", "st-mamba")
NAMES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in PEERS]
"""Every peer; those that take seconds are left to the slow tests. ChangeMamba shares their scan."""
