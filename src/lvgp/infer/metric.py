"""The metric of microcanonical trajectories: what a step of length one is in each direction.

Levels that the data hold together move together easily and apart hardly, so one entry for each
parameter is not enough. The density does not change when the latents of a column are rotated; on
average over it, different coordinates have nothing to do with each other. So the metric has one
matrix between the levels of each column, shared by all coordinates, and one between the
hyperparameters (benchmarks/metrics.py measures what that is worth).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.integrators import (
    IntegratorState,
    esh_dynamics_momentum_update_one_step,
    euclidean_position_update_fn,
    format_isokinetic_state_output,
    generalized_two_stage_integrator,
    velocity_verlet_coefficients,
)
from jax import Array

from lvgp.model import Model

Roots = tuple[Any, ...]
"""Symmetric square roots of the matrices: of the hyperparameters, then of each column's levels."""

_DRAWS_AN_ENTRY = 1.0
"""Draws for each row of a matrix from which half of what lies beside its diagonal is believed."""
_LEAST, _MOST = 1e-4, 1e4
"""Bounds of the metric's eigenvalues."""


def unit(model: Model) -> Roots:
    """Return the metric that treats all directions alike."""
    return tuple(np.eye(size) for size, _ in _blocks(model))


def stretched(model: Model, roots: Roots, vectors: Any) -> Any:
    """Multiply vectors (..., parameters) by the root of the metric."""
    parts, start = [], 0
    for (size, dim), root in zip(_blocks(model), roots, strict=True):
        stop = start + size * dim
        block = vectors[..., start:stop].reshape(*vectors.shape[:-1], size, dim)
        parts.append((root @ block).reshape(*vectors.shape[:-1], size * dim))
        start = stop
    return jnp.concatenate(parts, axis=-1)


def isokinetic_steps(
    model: Model, log_density: Callable[[Array], Array], roots: Roots
) -> Callable[..., tuple[IntegratorState, Array]]:
    """Return BlackJAX's isokinetic leapfrog step with a metric in blocks, which it does not know.

    Its dynamics see gradient and direction in the coordinates in which the metric is the identity.
    """
    turn = esh_dynamics_momentum_update_one_step(1.0)

    def turned(
        direction: Array, gradient: Array, *step: Any, is_last_call: bool
    ) -> tuple[Array, Array, Array]:
        direction, velocity, kinetic = turn(
            direction, stretched(model, roots, gradient), *step, is_last_call=is_last_call
        )
        return direction, stretched(model, roots, velocity), kinetic

    return generalized_two_stage_integrator(
        turned,
        euclidean_position_update_fn(log_density),
        velocity_verlet_coefficients,
        format_output_fn=format_isokinetic_state_output,
    )


def measured(model: Model, vectors: np.ndarray, gradients: np.ndarray, before: Roots) -> Roots:
    """Return the metric from draws (chains, draws, parameters) and the gradients there.

    The matrix M that makes draws and gradients alike: M cov(gradient) M = cov(z). Of one parameter
    it is sd(z) / sd(gradient). Entries beside the diagonal are shrunk, the more the fewer draws.
    What cannot be measured, as when no chain has moved, stays as it was `before`.
    """
    usable = np.isfinite(vectors).all(axis=2) & np.isfinite(gradients).all(axis=2)
    draws, slopes = vectors[usable], gradients[usable]
    if len(np.unique(draws, axis=0)) < 2:
        return before
    roots, start = [], 0
    for (size, dim), known in zip(_blocks(model), before, strict=True):
        block = slice(start, start + size * dim)
        believed = len(draws) / (len(draws) + _DRAWS_AN_ENTRY * size)
        spread, slope = (
            _covariance(part[:, block].reshape(-1, size, dim), start > 0, believed)
            for part in (draws, slopes)
        )
        clear = all(
            np.isfinite(part).all() and np.diagonal(part).min() > 0.0 for part in (spread, slope)
        )
        roots.append(_alike(spread, slope) if clear else known)
        start = block.stop
    return tuple(roots)


def _blocks(model: Model) -> list[tuple[int, int]]:
    """Return rows and coordinates of each part of the parameter vector that has a matrix."""
    return [(model.raw_start, 1), *zip(model.n_levels, model.latent_dims, strict=True)]


def _covariance(values: np.ndarray, centred: bool, believed: float) -> np.ndarray:
    """Return the covariance over draws (draws, size, dim) and coordinates, shrunk.

    Rotation makes latents and their gradients zero on average: they are `centred` as they are.
    """
    values = values if centred else values - values.mean(axis=0)
    draws, _, dim = values.shape
    found = np.einsum("nad,nbd->ab", values, values) / (draws * dim)
    return believed * found + (1.0 - believed) * np.diag(np.diagonal(found))


def _alike(spread: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Return the root of M with M slope M = spread."""
    # scaled so that both have the same diagonal, which keeps rounding small
    scale = (np.diagonal(spread) / np.diagonal(slope)) ** 0.25
    spread, slope = spread / np.outer(scale, scale), slope * np.outer(scale, scale)
    half = _root(slope)
    inverse = np.linalg.inv(half)
    metric = inverse @ _root(half @ spread @ half) @ inverse
    return _root(metric * np.outer(scale, scale), _LEAST, _MOST)


def _root(matrix: np.ndarray, least: float = 0.0, most: float = np.inf) -> np.ndarray:
    """Return the symmetric square root, the eigenvalues kept within bounds and above rounding."""
    values, directions = np.linalg.eigh(matrix)
    values = np.clip(values, max(1e-12 * values[-1], least), most)
    return (directions * np.sqrt(values)) @ directions.T
