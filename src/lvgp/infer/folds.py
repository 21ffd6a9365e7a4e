"""Folding latent maps: Metropolis moves between maps that trajectories rarely pass between.

Levels on a plane are in each other's way: to change sides they would have to pass where the density
is low. A fold takes some of them there at once, by mirroring one end of the map. It needs the
density only, not its gradient (benchmarks/folds.py measures what folds are worth). Where maps
change as fast without them, folds are hardly tried.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lvgp.model import Model

WARM_UP_FOLDS = 0.7
"""Tried for each step of a trajectory during warm-up, in all columns together."""
FEWEST_FOLDS, MOST_FOLDS = 0.1, 1.5
"""Of a column for each step, after warm-up."""
_FOLDS_WORTH = 0.03
"""Folds of a column for each step, times what a draw is worth of the slowest part of its map."""
_STEPS_A_FOLD = 0.5
"""What a fold costs."""
_REPAID = 0.5
"""Share of their cost that folds must repay in warm-up: later they may lead where it never was."""
_SLOW = 0.1
"""Share of a map's correlations that count as slow."""


def fold(latents: Array, key: Array) -> Array:
    """Return raw latents (levels, d) of one column with those at one end of the map mirrored.

    Up to a third of the levels, few more often than many, are taken from one end along a random
    direction n, and mirrored along a random direction perpendicular to n at the origin, where the
    prior has its centre. That changes no projection on n, so folding again with the same key undoes
    it; it keeps volumes, and the prior. A fold is therefore accepted with the ratio of likelihoods.
    In one dimension the levels furthest from the origin, or nearest to it, change sign.
    """
    levels, dim = latents.shape
    keys = jax.random.split(key)
    first, second = jax.random.normal(keys[0], (2, dim))
    if dim == 1:
        mirrored, along = jnp.ones(1), first * jnp.abs(latents[:, 0])
    else:
        mirrored = second - first * (first @ second) / (first @ first)
        mirrored, along = mirrored / jnp.linalg.norm(mirrored), latents @ first
    most = 1 + levels // 3
    count = jnp.floor(most ** jax.random.uniform(keys[1]))
    place = jnp.sum(along[:, None] > along, axis=1)
    across = jnp.where(place < count, latents @ mirrored, 0.0)
    return latents - 2.0 * across[:, None] * mirrored


def spread_over(levels: tuple[int, ...], folds: float = WARM_UP_FOLDS) -> np.ndarray:
    """Return folds of each column: the more levels, the more are in each other's way."""
    return folds * np.asarray(levels, float) / max(1, sum(levels))


def share_of_change(ended: np.ndarray, began: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """Return which share of what a draw changes is the work of folds, for each quantity q.

    E(q_folded - q)^2 / (2 var q (1 - rho)), from values (chains, draws, quantities) where
    trajectories ended and where the next ones began; 1 - rho = 2 w / (1 + w) where a draw is worth
    w independent ones (as in an autoregression).
    """
    by_folds = np.mean((began[:, 1:] - ended[:, :-1]) ** 2, axis=(0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return by_folds / np.var(ended, axis=(0, 1)) * (1.0 + worth) / (4.0 * worth)


def wanted(worth: np.ndarray, by_folds: np.ndarray, tried: float) -> float:
    """Return how many folds of a column to try for each step of a trajectory.

    The more, the slower the slowest correlation of its map changes, judged by what a draw is
    `worth` of each. But few where folds cost far more than they bring: where the share of the
    change that is theirs, in the slow correlations, is below half their share of the cost of a
    draw, `tried` as often as they were. What cannot be measured is folded.
    """
    if not len(worth):
        return FEWEST_FOLDS
    slow = np.argsort(worth)[: max(1, round(_SLOW * len(worth)))]
    cost = _STEPS_A_FOLD * tried
    if np.mean(by_folds[slow]) < _REPAID * cost / (1.0 + cost):
        return FEWEST_FOLDS
    slowest = max(1e-6, np.nan_to_num(worth).min())
    return float(np.clip(_FOLDS_WORTH / slowest, FEWEST_FOLDS, MOST_FOLDS))


class Folded(NamedTuple):
    """Where tried folds have led."""

    vector: Array
    log_density: Array
    guess: Array
    """The log density, nearly."""
    changed: Array
    """Whether any fold was accepted."""


def try_folds(
    model: Model,
    log_density: Callable[[Array], Array],
    guess: Callable[[Array], Array],
    vector: Array,
    value: Array,
    key: Array,
    attempts: Array,
) -> Folded:
    """Try folds of random columns, one after the other; `value` is the log density at `vector`.

    `attempts` is how many of each column to try on average.
    A fold must first be accepted by a guess at its density, which is cheaper; then by how far the
    guess was wrong. Both together leave the density as it is (delayed acceptance, Christen and Fox
    2005). Without one, `guess` is the density itself.
    """
    columns, start = [], model.raw_start
    for levels, dim in zip(model.n_levels, model.latent_dims, strict=True):
        columns.append(partial(_fold_block, slice(start, start + levels * dim), levels))
        start += levels * dim
    if not columns:
        return Folded(vector, value, value, jnp.asarray(False))
    up_to = jnp.cumsum(attempts)
    sure = guess is log_density
    guessed = value if sure else guess(vector)
    begin = Folded(vector, value, guessed, jnp.asarray(False))

    def attempt(index: Array, state: Folded) -> Folded:
        keys = jax.random.split(jax.random.fold_in(key, index))
        column, *thresholds = jax.random.uniform(keys[0], (3,))
        first, second = map(jnp.log, thresholds)
        which = jnp.searchsorted(up_to, column * up_to[-1], side="right")
        folded = jax.lax.switch(which, columns, state.vector, keys[1])
        guessed = guess(folded)
        gain = guessed - state.guess
        # never true where the density is not a number
        taken, new = first < gain, guessed
        if not sure:
            new = jax.lax.cond(
                taken, log_density, lambda _: jnp.full_like(guessed, -jnp.inf), folded
            )
            taken &= second < new - state.log_density - gain
        tried = Folded(folded, new, guessed, jnp.asarray(True))
        return jax.tree.map(lambda new, old: jnp.where(taken, new, old), tried, state)

    return jax.lax.fori_loop(0, jnp.ceil(up_to[-1]).astype(jnp.int32), attempt, begin)


def _fold_block(block: slice, levels: int, vector: Array, key: Array) -> Array:
    folded = fold(vector[block].reshape(levels, -1), key)
    return vector.at[block].set(folded.ravel())
