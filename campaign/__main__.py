"""`python -m campaign kill` and `python -m campaign fuzz`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path


def main() -> int:
    """Run a campaign; returns 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    kill = kinds.add_parser("kill", help="kill commands at random moments")
    kill.add_argument("--rounds", type=int, default=100, help="of each command")
    fuzz = kinds.add_parser("fuzz", help="feed the parsers what nobody meant")
    fuzz.add_argument("--inputs", type=int, default=10_000, help="for each parser")
    fuzz.add_argument("--engine", choices=("own", "atheris"), default="own")
    fuzz.add_argument("--keep", type=Path, help="folder for inputs that failed or were slow")
    for one in (kill, fuzz):
        one.add_argument("--seed", type=int, default=0)
        one.add_argument("--only", action="append", help="may be given more than once")
        one.add_argument("--seconds", type=float, default=float("inf"), help="most for each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.kind == "kill":
            import torch

            torch.set_num_threads(1)
            from campaign import kill as crashes

            chosen = options.only or [*crashes.COMMANDS, crashes.SERVER]
            tallies = crashes.campaign(
                Path(name),
                chosen,
                rounds=options.rounds,
                seed=options.seed,
                seconds=options.seconds,
            )
            return int(any(tally.failures for tally in tallies.values()))
        from campaign import fuzz as inputs

        return inputs.campaign(
            Path(name),
            options.only or list(inputs.TARGETS),
            count=options.inputs,
            seed=options.seed,
            seconds=options.seconds,
            engine=options.engine,
            keep=options.keep,
        )


if __name__ == "__main__":
    sys.exit(main())
