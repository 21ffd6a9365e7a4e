"""The metric of microcanonical trajectories: learned as it should be, and used as BlackJAX does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.integrators import IntegratorState, isokinetic_velocity_verlet
from blackjax.util import generate_unit_vector

from lvgp.infer.metric import isokinetic_steps, measured, stretched, unit
from lvgp.model import Model

pytestmark = pytest.mark.usefixtures("double_precision")
MODEL = Model(1, (4, 3), (2, 3))
SIZES = MODEL.raw_start, 4, 3
DIMS = 1, 2, 3


def covariances(seed=0):
    """Return a covariance of the hyperparameters, and of the levels of either column."""
    rng = np.random.default_rng(seed)
    roots = (rng.standard_normal((size, size)) for size in SIZES)
    return [root @ root.T + 0.3 * np.eye(len(root)) for root in roots]


def whole(matrices):
    """Return the matrices of all parts as one that acts on the parameter vector."""
    blocks = [np.kron(part, np.eye(dim)) for part, dim in zip(matrices, DIMS, strict=True)]
    ends = np.cumsum([len(block) for block in blocks])
    found = np.zeros((MODEL.size, MODEL.size))
    for block, end in zip(blocks, ends, strict=True):
        found[end - len(block) : end, end - len(block) : end] = block
    return found


def gaussian(draws, seed=1):
    """Return the covariance of a normal density, draws from it (4 chains), and their gradients."""
    matrix = whole(covariances())
    noise = np.random.default_rng(seed).standard_normal((4, draws, MODEL.size))
    deviations = noise @ np.linalg.cholesky(matrix).T
    centre = np.zeros(MODEL.size)
    centre[: MODEL.raw_start] = 7.0
    return matrix, centre + deviations, -deviations @ np.linalg.inv(matrix)


def test_of_a_normal_density_the_metric_is_the_covariance():
    """Gradients are linear in the draws, so the covariance of these is left; and what is shrunk."""
    matrix, vectors, gradients = gaussian(10_000)
    root = whole(measured(MODEL, vectors, gradients, unit(MODEL)))
    np.testing.assert_allclose(root, root.T, atol=1e-12)
    scale = np.sqrt(np.diagonal(matrix))
    np.testing.assert_allclose(
        root @ root / np.outer(scale, scale), matrix / np.outer(scale, scale), atol=2e-3
    )


def test_the_metric_makes_draws_and_gradients_alike():
    """M cov(gradient) M = cov(z), what is shrunk included, of draws that are not normal."""
    _, vectors, gradients = gaussian(500)
    vectors = vectors**3
    start, draws = MODEL.raw_start, 4 * 500
    root = measured(MODEL, vectors, gradients, unit(MODEL))[1]
    spread, slope = (
        np.einsum("cnad,cnbd->ab", part, part) / (draws * 2)
        for part in (
            values[..., start : start + 8].reshape(4, -1, 4, 2) for values in (vectors, gradients)
        )
    )
    for matrix in (spread, slope):
        diagonal = np.diag(np.diagonal(matrix))
        matrix[:] = diagonal + (matrix - diagonal) * draws / (draws + 4)
    metric = root @ root
    np.testing.assert_allclose(metric @ slope @ metric, spread, rtol=1e-6, atol=1e-8)


def test_few_draws_leave_the_metric_within_bounds():
    _, vectors, gradients = gaussian(2)
    vectors[0, 0, 3] = np.nan
    for roots in (
        measured(MODEL, vectors, 1e-9 * gradients, unit(MODEL)),
        measured(MODEL, vectors, 1e9 * gradients, unit(MODEL)),
        measured(MODEL, vectors, gradients, unit(MODEL)),
    ):
        for root in roots:
            values = np.linalg.eigvalsh(root)
            assert 0.0099 < values.min() <= values.max() < 101.0


def test_what_cannot_be_measured_stays_as_it_was():
    before = tuple(covariances(5))
    _, vectors, gradients = gaussian(6)
    still = np.tile(vectors[:1, :1], (4, 6, 1)), np.tile(gradients[:1, :1], (4, 6, 1))
    missing = np.full_like(vectors, np.nan), gradients
    one = vectors[:1, :1], gradients[:1, :1]
    for draws in (still, missing, one, (vectors[:0], gradients[:0])):
        assert measured(MODEL, *draws, before) is before
    gradients[..., MODEL.raw_start] = 1e200
    found = measured(MODEL, vectors, gradients, before)
    assert [new is old for new, old in zip(found, before, strict=True)] == [False, True, False]


def test_stretched_multiplies_by_the_blocks():
    roots, vectors = covariances(), np.random.default_rng(0).standard_normal((5, 2, MODEL.size))
    np.testing.assert_allclose(stretched(MODEL, roots, vectors), vectors @ whole(roots), rtol=1e-9)
    np.testing.assert_allclose(stretched(MODEL, unit(MODEL), vectors), vectors, rtol=1e-12)


def test_steps_are_those_of_blackjax_in_the_coordinates_where_the_metric_is_one():
    roots = covariances()
    matrix = whole(roots)

    def log_density(vector):
        return -jnp.sum(jnp.cosh(vector)) + jnp.sin(vector[0] * vector[-1])

    def in_units(position):
        return log_density(matrix @ position)

    start = 0.1 * np.random.default_rng(2).standard_normal(MODEL.size)
    direction = generate_unit_vector(jax.random.key(0), jnp.asarray(start))
    states = []
    for density, position, step in (
        (log_density, matrix @ start, isokinetic_steps(MODEL, log_density, roots)),
        (in_units, start, isokinetic_velocity_verlet(in_units, jnp.ones(MODEL.size))),
    ):
        value, slope = jax.value_and_grad(density)(jnp.asarray(position))
        state, kinetic = IntegratorState(jnp.asarray(position), direction, value, slope), 0.0
        for _ in range(3):
            state, change = jax.jit(step)(state, 0.05)
            kinetic += change
        states.append((state, kinetic))
    (ours, our_kinetic), (theirs, their_kinetic) = states
    assert abs(ours.position - matrix @ start).max() > 0.05
    np.testing.assert_allclose(ours.position, matrix @ theirs.position, rtol=1e-9)
    np.testing.assert_allclose(ours.momentum, theirs.momentum, rtol=1e-9)
    np.testing.assert_allclose(our_kinetic, their_kinetic, rtol=1e-9)
