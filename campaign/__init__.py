"""Faults on purpose: processes killed at random moments, and parsers fed what nobody meant.

    python -m campaign kill --rounds 200
    python -m campaign fuzz --inputs 10000

`docs/reliability.md` says what was tried, how often, and what came of it.
"""
