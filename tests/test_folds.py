"""Folds of latent maps: undone by themselves, keeping volumes, leaving any density as it is."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from lvgp.infer.folds import (
    FEWEST_FOLDS,
    MOST_FOLDS,
    fold,
    share_of_change,
    spread_over,
    try_folds,
    wanted,
)
from lvgp.model import Model

pytestmark = pytest.mark.usefixtures("double_precision")
SHAPES = [(3, 1), (9, 1), (3, 2), (12, 2), (7, 3), (40, 8)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_fold_mirrors_up_to_a_third_of_the_levels_and_undoes_itself(shape):
    latents = np.random.default_rng(0).standard_normal(shape)
    for seed in range(20):
        key = jax.random.key(seed)
        folded = fold(latents, key)
        moved = (np.abs(folded - latents) > 1e-9).any(axis=1).sum()
        assert 1 <= moved <= shape[0] // 3
        np.testing.assert_allclose(fold(folded, key), latents, atol=1e-12)
        # the prior depends on distances to the origin
        np.testing.assert_allclose((folded**2).sum(1), (latents**2).sum(1), rtol=1e-12)
        jacobian = jax.jacfwd(lambda z, key=key: fold(z, key).ravel())(jnp.asarray(latents))
        assert abs(np.linalg.det(jacobian.reshape(latents.size, -1))) == pytest.approx(1.0)


def test_few_levels_are_folded_more_often_than_many():
    """P(n of 12) = log((n + 1) / n) / log 5, n = 1..4; chi-square, false alarms 1e-6."""
    latents = np.random.default_rng(1).standard_normal((12, 2))
    folded = jax.vmap(partial(fold, latents))(jax.random.split(jax.random.key(0), 4000))
    moved = (np.abs(folded - latents) > 1e-9).any(axis=2).sum(axis=1)
    expected = np.log(np.arange(2, 6) / np.arange(1, 5)) / np.log(5.0)
    assert stats.chisquare(np.bincount(moved, minlength=5)[1:], 4000 * expected).pvalue > 1e-6


@pytest.mark.parametrize(("dims", "wrong"), [((2, 1), 0.0), ((2, 3), 0.0), ((2, 2), 1.5)])
def test_folds_leave_a_lopsided_density_as_it_is(dims, wrong):
    """Exact draws, by rejection from the prior, have the same averages after thirty folds each.

    Also where the guess at the density is wrong. Eleven comparisons with |z| < 5 on 20 000
    independent draws: false alarms below 1e-5.
    """
    model = Model(0, (4, 5), dims)
    rng = np.random.default_rng(2)
    tilt = rng.standard_normal(model.size)

    def log_likelihood(vector):
        return 2.0 * jnp.tanh(vector @ tilt) - 2.0 * jnp.cos(3.0 * vector[-1] * vector[-2]) - 4.0

    candidates = rng.standard_normal((400_000, model.size))
    chance = np.exp(np.asarray(jax.vmap(log_likelihood)(candidates)))
    before = candidates[rng.random(len(chance)) < chance][:20_000]

    def log_density(vector):
        return log_likelihood(vector) - 0.5 * vector @ vector

    def guess(vector):
        return log_density(vector) + wrong * jnp.sin(vector @ tilt)

    attempts = jnp.asarray([12.0, 18.0])

    @jax.jit
    @jax.vmap
    def folded(vector, key):
        guessed = guess if wrong else log_density
        return try_folds(model, log_density, guessed, vector, log_density(vector), key, attempts)

    found = folded(before, jax.random.split(jax.random.key(3), len(before)))
    after = found.vector
    assert np.mean(found.changed) > 0.9
    np.testing.assert_allclose(found.log_density, jax.vmap(log_density)(after), rtol=1e-9)
    hyperparameters = slice(0, model.raw_start)
    np.testing.assert_array_equal(after[:, hyperparameters], before[:, hyperparameters])
    fresh = candidates[rng.random(len(chance)) < chance][-20_000:]
    directions = np.concatenate([tilt[None], rng.standard_normal((4, model.size))])
    for part in (slice(None), slice(model.raw_start, None)):
        for direction in directions:
            found, expected = (values[:, part] @ direction[part] for values in (after, fresh))
            error = np.hypot(found.std(), expected.std()) / np.sqrt(20_000)
            assert abs(found.mean() - expected.mean()) < 5 * error
    found, expected = (np.cos(3.0 * values[:, -1] * values[:, -2]) for values in (after, fresh))
    error = np.hypot(found.std(), expected.std()) / np.sqrt(20_000)
    assert abs(found.mean() - expected.mean()) < 5 * error


def test_folds_pass_between_modes_that_lie_apart():
    """A level at one end of the map has two places, of equal weight and far from each other.

    Half of 4000 independent runs from one of them end at either: |z| < 5, false alarms below 1e-6.
    """
    model = Model(0, (3,), (2,))
    anchors = jnp.asarray([[-2.0, 0.0], [0.0, 0.5]])

    def log_density(vector):
        raw = vector[model.raw_start :].reshape(3, 2)
        side = (jnp.abs(raw[2, 1]) - 1.5) ** 2 + (raw[2, 0] - 2.0) ** 2
        return -50.0 * (side + jnp.sum((raw[:2] - anchors) ** 2))

    start = jnp.concatenate([jnp.zeros(model.raw_start), anchors.ravel(), jnp.asarray([2.0, 1.5])])
    keys = jax.random.split(jax.random.key(0), 4000)

    def moves(key):
        return try_folds(
            model, log_density, log_density, start, log_density(start), key, jnp.asarray([400.0])
        )

    run = jax.vmap(moves)
    ends = np.asarray(jax.jit(run)(keys).vector)[:, -1]
    np.testing.assert_allclose(np.abs(ends), 1.5, atol=0.6)
    assert abs(np.mean(ends > 0) - 0.5) < 5 * 0.5 / np.sqrt(4000)


def test_columns_are_folded_as_often_as_asked():
    """4000 single folds, all accepted, of columns with 2, 9 and 4 levels.

    A chi-squared test fails by chance less than once in 10^6 runs.
    """
    model, asked = Model(0, (2, 9, 4), (2, 1, 3)), np.array([0.15, 0.75, 0.1])
    start = jax.random.normal(jax.random.key(1), (model.size,))

    def flat(vector):
        return jnp.zeros(())

    def fold_once(key):
        return try_folds(model, flat, flat, start, flat(start), key, jnp.asarray(asked)).vector

    vectors = jax.vmap(fold_once)(jax.random.split(jax.random.key(0), 4000))
    moved = np.abs(np.asarray(vectors - start)) > 1e-9
    starts = model.raw_start + np.cumsum([0, 4, 9])
    others, *columns = np.split(moved, starts, axis=1)
    folded = [part.any(axis=1).sum() for part in columns]
    assert not others.any()
    assert sum(folded) == 4000
    assert stats.chisquare(folded, 4000 * asked).pvalue > 1e-6


def test_folds_are_spread_over_columns_by_their_levels():
    np.testing.assert_allclose(spread_over((2, 9, 4), 3.0), [0.4, 1.8, 0.8])
    assert spread_over((), 3.0).shape == (0,)


def test_the_share_of_change_that_is_the_work_of_folds():
    """Folds redraw a quantity with chance p, trajectories keep a share r of it.

    So rho = (1 - p) r, and the share is p / (1 - rho). Of 40 chains with 2000 draws each the
    relative error of the mean square has an sd below 1 %: within 6 %, false alarms below 1e-6.
    """
    rng, draws = np.random.default_rng(0), 2000
    p, r = np.array([0.0, 0.05, 0.3, 0.3]), np.array([0.9, 0.9, 0.9, 0.0])
    ended, began = np.empty((2, 40, draws, 4))
    value = rng.standard_normal((40, 4))
    for draw in range(draws):
        redrawn = rng.random((40, 4)) < p
        value = np.where(redrawn, rng.standard_normal((40, 4)), value)
        began[:, draw] = value
        value = r * value + np.sqrt(1.0 - r**2) * rng.standard_normal((40, 4))
        ended[:, draw] = value
    rho = (1.0 - p) * r
    found = share_of_change(ended, began, (1.0 - rho) / (1.0 + rho))
    np.testing.assert_allclose(found, p / (1.0 - rho), rtol=0.06)


def test_folds_are_wanted_where_their_share_of_the_change_is_above_half_that_of_the_cost():
    """Tried once for two steps, folds are a fifth of the cost."""
    worth = np.array([0.5, 0.04, 0.3])
    shares = np.array([0.0, 0.11, 0.0])
    assert wanted(worth, shares, 0.5) == pytest.approx(0.03 / 0.04)
    assert wanted(worth, shares - 0.02, 0.5) == FEWEST_FOLDS
    assert wanted(worth / 10.0, shares, 0.5) == MOST_FOLDS
    assert wanted(np.array([0.9, 0.8]), np.ones(2), 0.5) == FEWEST_FOLDS
    assert wanted(np.full(3, np.nan), shares * np.nan, 0.5) == MOST_FOLDS
    assert wanted(np.zeros(0), np.zeros(0), 0.5) == FEWEST_FOLDS


def test_nothing_is_folded_where_the_density_is_not_a_number():
    model, start = Model(0, (4,), (2,)), jnp.arange(11.0)

    def missing(vector):
        return jnp.asarray(jnp.nan)

    for density, guess in ((missing, missing), (missing, jnp.sum), (jnp.sum, missing)):
        found = try_folds(
            model, density, guess, start, jnp.asarray(0.0), jax.random.key(0), jnp.asarray([50.0])
        )
        assert not found.changed
        assert found.log_density == 0.0
        np.testing.assert_array_equal(found.vector, start)


def test_without_categories_there_is_nothing_to_fold():
    start = jnp.arange(3.0)
    found = try_folds(
        Model(1, (), ()), jnp.sum, jnp.sum, start, jnp.asarray(3.0), jax.random.key(0), jnp.zeros(0)
    )
    assert not found.changed
    np.testing.assert_array_equal(found.vector, start)
