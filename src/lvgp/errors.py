"""The exceptions and warnings a user can meet, each with what to do about it in its message."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)


class LVGPError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(LVGPError, ValueError):
    """The table, the response or an option is not what the model can take."""


class InputTypeError(InputError, TypeError):
    """A value or column is of a kind that no column of a model can have."""


class NumericalError(LVGPError, ArithmeticError):
    """The computation broke down even after the covariance was stabilised."""


class ModelFileError(LVGPError, ValueError):
    """A saved model cannot be read: truncated, altered, foreign or from a newer version."""


class LVGPWarning(UserWarning):
    """Base of every warning this package gives."""


class DataWarning(LVGPWarning):
    """The table was accepted, but something in it was changed or looks like a mistake."""


class OptionWarning(LVGPWarning):
    """An option was given that has no effect together with the others."""


class NumericalWarning(LVGPWarning):
    """The covariance had to be stabilised, or starts of the optimiser failed."""


class ConvergenceWarning(LVGPWarning):
    """Inference ended before it reached the quality asked for."""


class SlowFitWarning(LVGPWarning):
    """The fit will take long, and something else would be quicker."""


class PlugInIntervalWarning(LVGPWarning):
    """Intervals come from point estimates of the latents and are probably too narrow."""


def warn(message: str, category: type[Warning]) -> None:
    """Give a warning that points at the line of the caller's own code."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
