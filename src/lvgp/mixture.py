"""Mixtures of normals, one for each column: moments and exact quantiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

_BLOCK = 1 << 16


class Components(NamedTuple):
    """Mean and sd of every component, each (components, columns)."""

    means: np.ndarray
    sds: np.ndarray


def mixture_moments(
    components: Components, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and sd of each column's mixture (paper, mixture moments).

    Components count equally unless `weights` (components, columns), summing to 1, says otherwise.
    """
    means, sds = components
    share = _shares(components, weights)
    mean = (share * means).sum(axis=0)
    variance = (share * (sds**2 + (means - mean) ** 2)).sum(axis=0)
    return mean, np.sqrt(variance)


def mixture_quantile(
    components: Components, probability: float, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the exact quantile of each column's normal mixture.

    A few columns at a time, so that what is computed on the way stays in the processor's cache.
    """
    count, columns = components.means.shape
    share = np.broadcast_to(_shares(components, weights), components.means.shape)
    size = max(1, _BLOCK // count)
    found = np.empty(columns)
    for start in range(0, columns, size):
        block = slice(start, start + size)
        part = Components(components.means[:, block], components.sds[:, block])
        found[block] = _quantile(part, probability, share[:, block])
    return found


def _quantile(components: Components, probability: float, share: np.ndarray) -> np.ndarray:
    """Return the quantile of each column.

    Newton steps on the distribution function, kept inside a bracket that always holds the root:
    it lies between the smallest and the largest of the components' own quantiles.
    """
    means, sds = components.means, np.maximum(components.sds, 1e-300)
    own = means + sds * ndtri(probability)
    low, high = own.min(axis=0), own.max(axis=0)
    value = 0.5 * (low + high)
    scale = np.maximum(sds.max(axis=0), np.abs(high - low))
    left = np.arange(len(value))
    for _ in range(200):
        at, z = value[left], (value[left] - means[:, left]) / sds[:, left]
        excess = (share[:, left] * ndtr(z)).sum(axis=0) - probability
        below = excess < 0
        low[left], high[left] = np.where(below, at, low[left]), np.where(below, high[left], at)
        density = (share[:, left] * np.exp(-0.5 * z * z) / sds[:, left]).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = at - excess * np.sqrt(2.0 * np.pi) / density
        inside = (step > low[left]) & (step < high[left])
        value[left] = np.where(inside, step, 0.5 * (low[left] + high[left]))
        # a Newton step this short leaves an error of the order of its square
        left = left[np.abs(value[left] - at) > np.where(inside, 1e-9, 1e-13) * scale[left]]
        if not len(left):
            break
    return value


def _shares(components: Components, weights: np.ndarray | None) -> np.ndarray:
    return (
        np.full((len(components.means), 1), 1.0 / len(components.means))
        if weights is None
        else weights
    )
