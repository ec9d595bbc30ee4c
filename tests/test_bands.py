"""A model's bands: their names, and how they are found in a file."""

from __future__ import annotations

import dataclasses

import pytest

from adadino import schema
from adadino.bands import RED_GREEN_BLUE, BandsConfig, match_bands, parse_band
from adadino.config import Config
from adadino.errors import ConfigError, InputError

FIVE = BandsConfig(names=("B02", "B03", "B04", "B08", "B11"))
SENTINEL = [f"B{i:02}" for i in range(1, 9)] + ["B8A", "B09", "B10", "B11", "B12"]


def found(config: BandsConfig, descriptions, colours=None, **more):
    colours = colours or ["undefined"] * len(descriptions)
    return match_bands(config, descriptions, colours, "image.tif", **more)


def test_a_name_says_its_wavelength_or_states_it() -> None:
    assert parse_band("b08") == ("B08", 842.0)
    assert parse_band("nir").wavelength == 842.0
    assert parse_band("thermal@10900") == ("thermal", 10900.0)


@pytest.mark.parametrize("text", ["thermal", "thermal@", "@665", "thermal@-1", "thermal@nan"])
def test_a_band_without_a_wavelength_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME@NANOMETRES"):
        BandsConfig(names=("red", "green", text))


def test_the_same_band_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="b02 twice"):
        BandsConfig(names=("B02", "B03", "b02"))


def test_the_backbone_sees_the_bands_nearest_to_red_green_and_blue() -> None:
    assert FIVE.rgb == (2, 1, 0)
    assert BandsConfig(names=("red", "green", "blue", "nir")).rgb == (0, 1, 2)
    assert BandsConfig(names=("B12", "B11", "B8A", "B04")).rgb == (3, 2, 1)
    assert RED_GREEN_BLUE.rgb == (0, 1, 2)


def test_bands_change_no_digest_of_a_model_without_them() -> None:
    assert "bands" not in schema.identity(Config())
    assert "enlarge" not in schema.identity(Config())
    with_bands = dataclasses.replace(Config(), bands=FIVE)
    assert schema.build(Config, schema.to_dict(with_bands)) == with_bands


def test_limits_are_one_for_each_band_or_one_for_all() -> None:
    assert not FIVE.is_scaled
    physical = dataclasses.replace(FIVE, scaling="reflectance")
    assert physical.is_scaled
    assert physical.limits == ((0.0,) * 5, (10_000.0,) * 5)
    given = dataclasses.replace(FIVE, low=(1.0,), high=(2.0, 3.0, 4.0, 5.0, 6.0))
    assert given.limits == ((1.0,) * 5, (2.0, 3.0, 4.0, 5.0, 6.0))
    with pytest.raises(ConfigError, match="3 values for 5 bands"):
        dataclasses.replace(FIVE, low=(0.0,) * 3, high=(1.0,))
    with pytest.raises(ConfigError, match="below"):
        dataclasses.replace(FIVE, low=(2.0,), high=(1.0,))


def test_bands_are_found_by_name_in_any_order() -> None:
    assert found(FIVE, SENTINEL) == ((2, 3, 4, 8, 12), "by name")
    assert found(FIVE, SENTINEL[::-1]) == ((12, 11, 10, 6, 2), "by name")
    assert found(FIVE, ["SWIR16", "nir", "Red (B4)", "B03, central wavelength 560 nm", "Blue"]) == (
        (5, 4, 3, 2, 1),
        "by name",
    )


def test_bands_are_found_by_colour_interpretation() -> None:
    four = BandsConfig(names=("red", "green", "blue", "nir"))
    assert found(four, [None] * 4, ["blue", "green", "red", "nir"])[0] == (3, 2, 1, 4)


def test_bands_without_names_are_taken_in_order_if_there_are_as_many() -> None:
    assert found(FIVE, [None] * 5) == ((1, 2, 3, 4, 5), "by place")
    with pytest.raises(InputError, match="lacks B02"):
        found(FIVE, [None] * 6)


def test_a_missing_band_is_named_with_the_way_out() -> None:
    with pytest.raises(InputError, match=r"image.tif lacks B11, .* B02, B03, B04, B08.* --bands"):
        found(FIVE, ["B02", "B03", "B04", "B08"])


def test_a_band_that_is_there_twice_is_a_question() -> None:
    with pytest.raises(InputError, match="B08 2 times, as bands 4, 6"):
        found(FIVE, ["B02", "B03", "B04", "nir", "B11", "near infrared"])
    # The exact name goes before another word for it.
    assert found(FIVE, ["B02", "B03", "B04", "B08", "B11", "nir"])[0] == (1, 2, 3, 4, 5)


def test_numbers_that_are_given_are_checked() -> None:
    assert found(FIVE, SENTINEL, given=(2, 3, 4, 8, 0)) == ((2, 3, 4, 8, 0), "given")
    for given, said in (
        ((1, 2, 3), "takes 5 band numbers"),
        ((1, 2, 3, 4, 14), "no band 14"),
        ((1, 2, 3, 4, 4), "band 4 twice"),
        ((0, 0, 0, 0, 0), "no band that is there"),
    ):
        with pytest.raises(InputError, match=said):
            found(FIVE, SENTINEL, given=given)
