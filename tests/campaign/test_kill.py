"""A handful of the campaign's rounds, so that the harness and the commands stay as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HANDFUL = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from campaign.kill import COMMANDS, Arena, Tally
arena, tally = Arena(Path(sys.argv[1]), traced=False), Tally()
for name, *moments in [
    ("prepare", ("operation", 0.01)),
    ("prepare", ("operation", 0.5), ("operation", 0.3)),
    ("prepare", ("operation", 0.985)),
    ("predict", ("operation", 0.45), ("operation", 0.3)),
    ("predict", ("operation", 0.98)),
]:
    arena.round(COMMANDS[name], moments, tally)
from campaign.server import ServerArena
(Path(sys.argv[1]) / "server").mkdir()
server = ServerArena(Path(sys.argv[1]) / "server", arena.inputs)
for moments in [("both", 0.5), ("server", 0.6)], [("time", 0.4), ("worker", 0.5)]:
    server.round(moments, tally)
server.close()
print(tally.rounds, tally.kills, *tally.failures, sep="\\n")
"""


@pytest.mark.slow
def test_killed_commands_go_on_to_the_bytes_of_an_undisturbed_run(tmp_path):
    # In a process of its own: the harness forks, which a process with threads must not.
    done = subprocess.run(
        [sys.executable, "-c", HANDFUL, str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rounds, kills, *failures = done.stdout.splitlines()
    assert (int(rounds), failures) == (7, [])
    assert int(kills) >= 8
