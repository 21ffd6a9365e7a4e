"""What the latents say: one frame of reference, a representative map, and how sure it is.

Given draws of a column's latents Z_b (each L x d, rotated and shifted at will), the representative
map Z* minimises the mean over draws of the Frobenius norm || k(Z_b) - k(Z) ||, k(Z) being the L x L
matrix of correlations between levels (paper, representative latents).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.optimize import minimize
from scipy.spatial.distance import squareform
from scipy.stats import chi2

from lvgp import compute
from lvgp.errors import InputError
from lvgp.kernels import KERNELS
from lvgp.space import Level

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STARTS = 4


def in_frame(latents: np.ndarray) -> np.ndarray:
    """Shift and rotate latents (..., L, d) into the frame of reference (paper, Algorithm 1).

    The first level lies at the origin, level i + 1 has zero coordinates beyond the i-th, and the
    i-th coordinate of level i + 1 is not negative. With A the levels 2 .. d + 1 and A' = QR, A Q is
    lower triangular: one rotation does it, whatever quadrant the levels lie in or if they coincide.
    """
    dim = latents.shape[-1]
    shifted = latents - latents[..., :1, :]
    rotation, triangle = np.linalg.qr(np.swapaxes(shifted[..., 1 : dim + 1, :], -1, -2))
    signs = np.where(np.diagonal(triangle, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    turned = shifted @ (rotation * signs[..., None, :])
    turned[..., ~_free(*latents.shape[-2:])] = 0.0
    return turned


def _free(levels: int, dim: int) -> np.ndarray:
    """Which coordinates the frame leaves free: all but level l, coordinate r >= l (from zero)."""
    return np.arange(dim)[None, :] < np.arange(levels)[:, None]


def correlations(kernel: str, latents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return k and dk/dD^2 between all levels of latents (..., L, d)."""
    differences = latents[..., :, None, :] - latents[..., None, :, :]
    with compute.scope():
        value, slope = KERNELS[kernel](np.sum(differences**2, axis=-1))
        return np.asarray(value), np.asarray(slope)


def mean_distance(kernel: str, latents: np.ndarray, draws: np.ndarray) -> float:
    """Return the objective: mean Frobenius norm between k(latents) and correlation draws."""
    return _Objective(kernel, draws, latents.shape[-1]).of(latents)


class _Objective:
    """Mean Frobenius norm to the draws' correlation matrices, and its gradient.

    Matrices are symmetric with unit diagonal: pairs a < b suffice, each counting twice.
    """

    def __init__(self, kernel: str, draws: np.ndarray, dim: int) -> None:
        self.kernel, self.levels, self.dim = kernel, draws.shape[-1], dim
        self.first, self.second = np.triu_indices(self.levels, 1)
        self.pairs = np.ascontiguousarray(draws[:, self.first, self.second])
        self.free = _free(self.levels, dim)

    def of(self, latents: np.ndarray) -> float:
        """Return the value at latents in any frame."""
        value, _ = self._correlation(latents)
        return float(np.sqrt(2.0 * ((self.pairs - value) ** 2).sum(axis=1)).mean())

    def __call__(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient at the free coordinates.

        The norms come from products with the centred draws, so that no array of their size is made.
        """
        latents = self.unpacked(parameters)
        value, slope = self._correlation(latents)
        shift = value - self._mean
        squares = self._squares - 2.0 * (self._centred @ shift) + shift @ shift
        norms = np.sqrt(2.0 * np.maximum(squares, 0.0))
        weights = 2.0 / np.maximum(norms, 1e-9) / len(norms)
        pull = weights.sum() * shift - weights @ self._centred
        return float(norms.mean()), self._pulled(latents, slope * pull)

    def squared(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Return half the squared norm to the mean correlation, and its gradient."""
        latents = self.unpacked(parameters)
        value, slope = self._correlation(latents)
        shift = value - self._mean
        return float(0.5 * shift @ shift), self._pulled(latents, slope * shift)

    @cached_property
    def _mean(self) -> np.ndarray:
        return self.pairs.mean(axis=0)

    @cached_property
    def _centred(self) -> np.ndarray:
        return self.pairs - self._mean

    @cached_property
    def _squares(self) -> np.ndarray:
        return np.einsum("bp,bp->b", self._centred, self._centred)

    def unpacked(self, parameters: np.ndarray) -> np.ndarray:
        """Return the latents with these free coordinates."""
        latents = np.zeros((self.levels, self.dim))
        latents[self.free] = parameters
        return latents

    def _correlation(self, latents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        squared = ((latents[self.first] - latents[self.second]) ** 2).sum(axis=1)
        with compute.scope():
            value, slope = KERNELS[self.kernel](squared)
            return np.asarray(value), np.asarray(slope)

    def _pulled(self, latents: np.ndarray, by_squared_distance: np.ndarray) -> np.ndarray:
        weights = np.zeros((self.levels, self.levels))
        weights[self.first, self.second] = 2.0 * by_squared_distance
        weights += weights.T
        gradient = weights.sum(axis=1)[:, None] * latents - weights @ latents
        return gradient[self.free]


def representative(kernel: str, latents: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return the representative latents of draws (B, L, d) with correlations (B, L, L).

    Searched from the best single draw, from the map whose correlations are nearest the mean (the
    squared-norm solution), and from draws unlike the best; the best end is kept. Deterministic.
    """
    objective = _Objective(kernel, draws, latents.shape[-1])
    best, *others = _spread_out(objective.pairs, _STARTS)
    framed = in_frame(latents[[best, *others]])
    starts = [start[objective.free] for start in framed]
    # one scope around thousands of evaluations, each of which would enter and leave its own
    with compute.scope():
        starts.insert(1, minimize(objective.squared, starts[0], jac=True, method="L-BFGS-B").x)
        ends = [minimize(objective, start, jac=True, method="L-BFGS-B").x for start in starts]
    winner = min([*starts, *ends], key=lambda end: objective.of(objective.unpacked(end)))
    return in_frame(objective.unpacked(winner))


def _spread_out(pairs: np.ndarray, count: int) -> list[int]:
    """Return the draw nearest all others, then draws each far from those chosen before."""
    products = pairs @ pairs.T
    squares = np.diagonal(products)
    apart = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2.0 * products, 0.0))
    chosen = [int(apart.mean(axis=1).argmin())]
    while len(chosen) < min(count, len(pairs)):
        chosen.append(int(apart[:, chosen].min(axis=1).argmax()))
    return chosen


def aligned(latents: np.ndarray, target: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Shift and rotate each of latents (B, L, d) onto `target` (orthogonal Procrustes).

    The levels chosen by the mask `by` decide; the others go along.
    """
    centre = target[by].mean(axis=0)
    centred = latents - latents[:, by].mean(axis=1, keepdims=True)
    left, _, right = np.linalg.svd(np.swapaxes(centred[:, by], 1, 2) @ (target[by] - centre))
    return centred @ (left @ right) + centre


@dataclass(frozen=True)
class LatentMap:
    """The map of one column's levels, with its uncertainty.

    Attributes
    ----------
    column
        The column's name.
    levels
        Its levels.
    observations
        Training rows of each level, a Series. Nothing is known of a level with none.
    coordinates
        The representative map: levels x d, a DataFrame. The frame is arbitrary but fixed.
    draws
        (draws, levels, d): the map of each draw, turned and shifted onto `coordinates`.
    correlation
        Posterior mean of the correlation between levels, a DataFrame: 1 means they act alike.
    correlation_draws
        (draws, levels, levels).
    """

    column: Any
    levels: tuple[Level, ...]
    observations: pd.Series
    coordinates: pd.DataFrame
    draws: np.ndarray
    correlation_draws: np.ndarray

    @property
    def correlation(self) -> pd.DataFrame:
        """Posterior mean of the correlation between levels."""
        return self._square(self.correlation_draws.mean(axis=0))

    def correlation_interval(self, coverage: float = 0.95) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return lower and upper end of the central interval of each correlation."""
        if not 0 < coverage < 1:
            raise InputError(f"coverage: expected a number between 0 and 1, got {coverage!r}")
        tail = 0.5 * (1.0 - coverage)
        lower, upper = np.quantile(self.correlation_draws, [tail, 1.0 - tail], axis=0)
        return self._square(lower), self._square(upper)

    def closer(self, level: Level, first: Level, second: Level) -> float:
        """Return the probability that `level` acts more like `first` than like `second`."""
        at, one, other = (self._position(name) for name in (level, first, second))
        return float(
            self._share(self.correlation_draws[:, at, one], self.correlation_draws[:, at, other])
        )

    @staticmethod
    def _share(one: np.ndarray, other: np.ndarray) -> float:
        return float((one > other).mean() + 0.5 * (one == other).mean())

    def nearest(self, level: Level, count: int = 10) -> pd.DataFrame:
        """Return the other levels, most alike first.

        Columns: correlation (posterior mean), lower, upper (95 %), probability (of being the most
        alike of all), observations.
        """
        at = self._position(level)
        others = [position for position in range(len(self.levels)) if position != at]
        values = self.correlation_draws[:, at, others]
        lower, upper = np.quantile(values, [0.025, 0.975], axis=0)
        winners = np.bincount(values.argmax(axis=1), minlength=len(others)) / len(values)
        table = pd.DataFrame(
            {
                "correlation": values.mean(axis=0),
                "lower": lower,
                "upper": upper,
                "probability": winners,
                "observations": self.observations.to_numpy()[others],
            },
            index=[self.levels[position] for position in others],
        )
        return table.sort_values("correlation", ascending=False, kind="stable").head(count)

    def region(self, level: Level, coverage: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
        """Return centre and half-axes (d, d: one a row) of an ellipse with `coverage` of the draws.

        The ellipse of the normal with the draws' mean and covariance, scaled so that the share of
        draws inside is `coverage`.
        """
        points = self.draws[:, self._position(level)]
        centre = points.mean(axis=0)
        if len(points) == 1:
            return centre, np.zeros((points.shape[1],) * 2)
        spread = np.atleast_2d(np.cov(points.T))
        values, axes = np.linalg.eigh(spread)
        scaled = ((points - centre) @ axes) ** 2 / np.maximum(values, 1e-300)
        radius = np.sqrt(np.quantile(scaled.sum(axis=1), coverage))
        radius = min(radius, 3.0 * np.sqrt(chi2.ppf(coverage, points.shape[1])))
        return centre, radius * np.sqrt(np.maximum(values, 0.0))[:, None] * axes.T

    def outline(self, level: Level, coverage: float = 0.8) -> np.ndarray:
        """Return the border of a level's region, or its shadow on `plane`, as points (60, 2)."""
        centre, half_axes = self.region(level, coverage)
        angles = np.linspace(0, 2 * np.pi, 60)
        shadow = half_axes @ self.plane
        spread = np.linalg.cholesky(shadow.T @ shadow + 1e-18 * np.eye(2))
        circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return np.asarray(centre @ self.plane + circle @ spread.T)

    @property
    def plane(self) -> np.ndarray:
        """The two directions (d, 2) in which the map is drawn.

        Its dimensions where these are two; where they are more, the two directions in which levels
        with data lie widest apart (the dimensions themselves depend on the order of the levels).
        """
        dim = self.coordinates.shape[1]
        if dim <= 2:
            return np.eye(dim, 2)
        directions = self._widest[1][:2].T
        turned = directions[np.abs(directions).argmax(axis=0), [0, 1]] < 0
        return np.where(turned, -directions, directions)

    @property
    def axis_labels(self) -> tuple[str, str]:
        """What the two directions of `plane` are called on a drawing."""
        dim = self.coordinates.shape[1]
        if dim <= 2:
            return "latent dimension 1", "latent dimension 2"
        squares = self._widest[0] ** 2
        share = squares[:2].sum() / max(squares.sum(), 1e-300)
        return (
            f"widest direction of {dim} latent dimensions",
            f"second widest (both: {share:.0%} of the spread)",
        )

    @property
    def _widest(self) -> tuple[np.ndarray, np.ndarray]:
        """Singular values and directions (one a row) of the levels with data around their mean."""
        points = self.coordinates.to_numpy()
        points = points[self.known.to_numpy()] if self.known.sum() > 2 else points
        return np.linalg.svd(points - points.mean(axis=0), full_matrices=True)[1:]

    @property
    def order(self) -> np.ndarray:
        """Positions of the levels, those that act alike beside each other."""
        apart = 1.0 - self.correlation.to_numpy()
        np.fill_diagonal(apart, 0.0)
        condensed = squareform(np.maximum(0.5 * (apart + apart.T), 0.0), checks=False)
        tree = optimal_leaf_ordering(linkage(condensed, "average"), condensed)
        return np.asarray(leaves_list(tree))

    def in_own_frame(self, draw: int) -> np.ndarray:
        """Return the map of one draw in the frame of reference, not turned onto the others."""
        return in_frame(self.draws[draw])

    @property
    def known(self) -> pd.Series:
        """Whether each level has training rows."""
        return self.observations > 0

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the map; see `lvgp.plots.latent_map`."""
        from lvgp import plots

        return plots.latent_map(self, ax=ax, **options)

    def _position(self, level: Level) -> int:
        if level not in self.levels:
            known = ", ".join(map(repr, self.levels))
            raise InputError(f"column {self.column!r} has no level {level!r}; it has {known}")
        return self.levels.index(level)

    def _square(self, values: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(values, index=list(self.levels), columns=list(self.levels))


def latent_map(
    kernel: str,
    column: Any,
    levels: tuple[Level, ...],
    counts: tuple[int, ...],
    latents: np.ndarray,
) -> LatentMap:
    """Return the map of a column from draws of its latents (B, L, d)."""
    draws, _ = correlations(kernel, latents)
    centre = representative(kernel, latents, draws) if len(latents) > 1 else in_frame(latents[0])
    names = [f"z{r + 1}" for r in range(latents.shape[-1])]
    # a level without data lies anywhere in each draw and would turn the others with it
    known = np.array(counts) > 0
    by = known if known.sum() > latents.shape[-1] else np.ones(len(levels), bool)
    return LatentMap(
        column=column,
        levels=levels,
        observations=pd.Series(counts, index=list(levels), name="observations"),
        coordinates=pd.DataFrame(centre, index=list(levels), columns=names),
        draws=aligned(latents, centre, by),
        correlation_draws=draws,
    )
