"""Options that are made of a dataclass's fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from adadino.cli.options import Typed, takes_dataclasses, whole_number
from adadino.schema import Bounds, Shown


@dataclass(frozen=True)
class Wish:
    name: Annotated[str, "Its name."]
    side: Annotated[int, "Its side.", Bounds(2, 9)] = 4
    round_off: Annotated[bool, "Rounded."] = False
    kept: Annotated[bool, "Kept."] = True
    colours: Annotated[tuple[str, ...], "May be given again."] = ()
    pair: Annotated[tuple[int, int] | None, "Two numbers."] = None
    wait_s: Annotated[int, "Hours.", Bounds(0.5, 9), Shown("wait", 3600)] = 7200
    words: Annotated[tuple[str, ...], "Made if not given."] = field(default_factory=lambda: ("a",))
    hidden: int = 7


def run(*arguments: str) -> tuple[int, Wish | None]:
    made: list[Wish] = []
    app = typer.Typer()

    @app.command()
    @takes_dataclasses(
        pair=Typed(lambda text: tuple(whole_number(one) for one in text.split(",")), "A,B")
    )
    def command(*, first: int = 1, wish: Wish) -> None:
        assert first == 1
        made.append(wish)

    code = CliRunner().invoke(app, list(arguments)).exit_code
    return code, made[0] if made else None


def test_defaults_are_the_dataclasss():
    assert run("--name", "a") == (0, Wish("a"))


def test_every_field_that_has_a_help_is_an_option():
    code, wish = run(
        *("--name", "a", "--side", "9", "--round-off", "--no-kept", "--pair", "1,2"),
        *("--colours", "red", "--colours", "blue", "--wait", "0.5", "--words", "b"),
    )
    assert (code, wish) == (
        0,
        Wish(
            "a",
            9,
            round_off=True,
            kept=False,
            colours=("red", "blue"),
            pair=(1, 2),
            wait_s=1800,
            words=("b",),
        ),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (),  # the name is missing
        ("--name", "a", "--side", "1"),
        ("--name", "a", "--side", "10"),
        ("--name", "a", "--hidden", "8"),
        ("--name", "a", "--no-round-off"),
        ("--name", "a", "--pair", "1,x"),
        ("--name", "a", "--wait", "0.25"),  # bounds are in the option's unit
        ("--name", "a", "--wait-s", "1800"),
    ],
)
def test_what_the_field_does_not_allow_is_a_wrong_command_line(arguments):
    assert run(*arguments) == (2, None)
