"""Scores of predictions: accuracy, and the quality of intervals and predictive distributions."""

from __future__ import annotations

from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from lvgp.errors import InputError


def rrmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error relative to predicting the mean of y (paper, numerical studies).

    sqrt(sum (y - mean)^2 / sum (y - average of y)^2); 1 is as good as the average.
    """
    y, mean = _columns(y=y, mean=mean)
    if np.ptp(y) == 0:
        raise InputError(
            f"y: is constant ({y[0]:g}), so an error relative to its spread is undefined"
        )
    return float(np.sqrt(np.sum((y - mean) ** 2) / np.sum((y - y.mean()) ** 2)))


def mean_interval_score(
    y: ArrayLike, lower: ArrayLike, upper: ArrayLike, coverage: float = 0.95
) -> float:
    """Mean interval score of central intervals, smaller is better (Gneiting and Raftery 2007).

    (u - l) + 2/alpha (l - y)_+ + 2/alpha (y - u)_+ with alpha = 1 - coverage.
    """
    if not (isinstance(coverage, Real) and 0 < coverage < 1):
        raise InputError(f"coverage: expected a number between 0 and 1, got {coverage!r}")
    y, lower, upper = _intervals(y, lower, upper)
    outside = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return float(np.mean(upper - lower + 2 / (1 - coverage) * outside))


def coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Share of the responses inside their intervals, ends included."""
    y, lower, upper = _intervals(y, lower, upper)
    return float(np.mean((lower <= y) & (y <= upper)))


def crps(y: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> float:
    """Mean continuous ranked probability score of normal predictions, smaller is better.

    s [z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)], z = (y - mean) / s.
    """
    y, mean, sd = _columns(y=y, mean=mean, sd=sd)
    _check_positive(sd)
    z = (y - mean) / sd
    phi = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return float(np.mean(sd * (z * (2 * ndtr(z) - 1) + 2 * phi - 1 / np.sqrt(np.pi))))


def nlpd(y: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> float:
    """Mean negative log predictive density of normal predictions, smaller is better."""
    y, mean, sd = _columns(y=y, mean=mean, sd=sd)
    _check_positive(sd)
    return float(np.mean(0.5 * ((y - mean) / sd) ** 2 + np.log(sd) + 0.5 * np.log(2 * np.pi)))


def _intervals(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> list[np.ndarray]:
    columns = _columns(y=y, lower=lower, upper=upper)
    swapped = np.flatnonzero(columns[1] > columns[2])
    if len(swapped):
        raise InputError(
            f"lower: is above upper at position {swapped[0]} ({len(swapped)} of {len(columns[0])})"
        )
    return columns


def _columns(**arrays: ArrayLike) -> list[np.ndarray]:
    """Return the arguments as 1-d float arrays of one length, or say which does not fit."""
    columns = {name: _numbers(name, values) for name, values in arrays.items()}
    length = next(iter(columns.values())).size
    for name, values in columns.items():
        if values.shape != (length,):
            raise InputError(f"{name}: expected a 1-d array of length {length}, got {values.shape}")
        if not np.isfinite(values).all():
            count = int((~np.isfinite(values)).sum())
            raise InputError(f"{name}: has {count} NaN or infinite values")
        if length == 0:
            raise InputError(f"{name}: is empty")
    return list(columns.values())


def _numbers(name: str, values: ArrayLike) -> np.ndarray:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name}: expected an array of numbers, got {values!r}") from None


def _check_positive(sd: np.ndarray) -> None:
    if (sd <= 0).any():
        raise InputError(f"sd: expected positive numbers, got {sd.min():g}")
