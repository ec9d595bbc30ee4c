"""What all verbs print with: tables that lose nothing on their way into a file."""

from __future__ import annotations

from adadino.cli.output import print_table


def test_off_a_terminal_a_table_is_as_wide_as_what_it_says(capsys):
    columns = [f"a heading of its own, number {i}" for i in range(12)]
    name = "a-name-without-any-place-to-break-it-" * 4
    print_table("title", ["", *columns], [[name, *range(12)]])
    lines = capsys.readouterr().out.splitlines()
    assert all(column in lines[2] for column in columns)
    assert name in lines[4]
    assert len({len(line) for line in lines[1:]}) == 1
    assert len(lines[1]) < 1000  # no wider than it has to be
