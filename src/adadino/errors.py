"""What can go wrong, as types: one base error for users, one base warning."""

from __future__ import annotations

import reprlib

LONGEST = 1200
"""The most characters of a message, which may quote an input of any length."""


class AdaDINOError(Exception):
    """A problem with the input or the run, said in one sentence with the way out.

    The command line prints it without a traceback and exits with 1.
    """

    def __str__(self) -> str:
        """The message; of one that is too long the beginning, and the end with the way out."""
        text = super().__str__()
        if len(text) <= LONGEST:
            return text
        return f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 2 :]}"


class ConfigError(AdaDINOError):
    """A setting that does not exist, has the wrong type, or contradicts another."""


class WeightsError(AdaDINOError):
    """A weights or checkpoint file that is missing, broken, hostile or for another model."""


class InputError(AdaDINOError):
    """Images that cannot be compared: wrong shape, size, channels or values."""


class NothingError(InputError):
    """Two images without one pixel that is valid on both."""


class DataError(AdaDINOError):
    """A dataset folder or archive that is incomplete, inconsistent or unreadable."""


class WriteError(AdaDINOError):
    """A file that cannot be written: the disk is full, or the folder is not writable."""


class TrainingError(AdaDINOError):
    """A training run that cannot start or go on."""


class AdaDINOWarning(UserWarning):
    """Something a user should know, although the work goes on."""


class NormalizationWarning(AdaDINOWarning):
    """The weights do not say which normalisation they were trained with."""


class BackboneWarning(AdaDINOWarning):
    """The model runs on random backbone weights."""


class LeakageWarning(AdaDINOWarning):
    """Two splits of a dataset are the same pairs."""


class ExtendedWarning(AdaDINOWarning):
    """A run goes on beyond its last epoch, under another schedule."""


class VectorWarning(AdaDINOWarning):
    """Polygons are written without a coordinate system: their areas are in pixels."""


class RegistrationWarning(AdaDINOWarning):
    """The dates are more than a pixel apart."""


class GridWarning(AdaDINOWarning):
    """The images lie on different grids, so `after` is resampled."""


class DomainWarning(AdaDINOWarning):
    """The images are not like those that the model was trained on."""


class BandWarning(AdaDINOWarning):
    """One band stands in for red, green and blue."""


class DatesWarning(AdaDINOWarning):
    """What the files say of their dates cannot be right, or is only when they were copied."""


class DevicesWarning(AdaDINOWarning):
    """A training run goes on with another number of devices."""


class EmptyWarning(AdaDINOWarning):
    """The masks that are to be found hold no change."""


class MemoryWarning(AdaDINOWarning):
    """A batch did not fit the device's memory; smaller ones do."""


class SameFileWarning(AdaDINOWarning):
    """Both dates are one file, so nothing can have changed."""


def say(value: object) -> str:
    """A value in a message: short, whatever it is. Long integers have no text in Python."""
    try:
        return _SHORT.repr(value)
    except ValueError:
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else "a value"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 120
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 20
