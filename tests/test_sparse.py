"""FITC and VFE against dense matrices, the exact process, and finite differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lvgp import exact, sparse
from lvgp.kernels import KERNELS

pytestmark = pytest.mark.usefixtures("double_precision")

RULES = ("fitc", "vfe")


def process(rows=25, points=6, columns=3, seed=0, noise=0.05):
    rng = np.random.default_rng(seed)
    return sparse.Process(
        features=jnp.asarray(rng.normal(size=(rows, columns))),
        inducing=jnp.asarray(rng.normal(size=(points, columns))),
        variance=jnp.asarray(1.7),
        noise=jnp.asarray(noise * rng.uniform(0.5, 2.0, rows)),
        mean_precision=jnp.asarray(0.8),
    ), jnp.asarray(rng.normal(size=rows))


def exactly(p):
    return exact.Process(p.features, p.variance, p.noise, p.mean_precision)


def correlation(kernel, left, right):
    differences = np.asarray(left)[:, None, :] - np.asarray(right)[None, :, :]
    return np.asarray(KERNELS[kernel](jnp.asarray((differences**2).sum(-1)))[0])


def dense(rule, kernel, p):
    """Return Q, the covariance of y without mu, and VFE's penalty, as the definitions have them."""
    variance = float(p.variance)
    cross = variance * correlation(kernel, p.features, p.inducing)
    inner = variance * correlation(kernel, p.inducing, p.inducing)
    Q = cross @ np.linalg.solve(inner, cross.T)
    residual = variance - np.diag(Q)
    C = Q + np.diag(np.asarray(p.noise))
    if rule == "fitc":
        return Q, C + np.diag(residual), 0.0
    return Q, C, 0.5 * np.sum(residual / np.asarray(p.noise))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_likelihood_is_that_of_the_dense_covariance(rule, kernel):
    p, y = process()
    _, C, penalty = dense(rule, kernel, p)
    with_mean = C + 1.0 / float(p.mean_precision)
    expected = stats.multivariate_normal(np.zeros(25), with_mean).logpdf(np.asarray(y)) - penalty
    found = sparse.log_marginal_likelihood(rule, kernel, True, p, y, jnp.ones(25))
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("rule", RULES)
def test_mean_at_its_maximum(rule):
    p, y = process()
    p = p._replace(mean_precision=jnp.asarray(0.0))
    _, C, penalty = dense(rule, "rbf", p)
    inverse = np.linalg.inv(C)
    mu = inverse.sum(0) @ np.asarray(y) / inverse.sum()
    expected = stats.multivariate_normal(np.full(25, mu), C).logpdf(np.asarray(y)) - penalty
    found = sparse.log_marginal_likelihood(rule, "rbf", False, p, y, jnp.ones(25))
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("integrate_mean", [True, False])
def test_gradient_is_that_of_finite_differences(rule, kernel, integrate_mean):
    p, y = process()
    mask = jnp.ones(25)

    def value(p, y):
        return sparse.log_marginal_likelihood(rule, kernel, integrate_mean, p, y, mask)

    gradient, of_y = jax.grad(value, argnums=(0, 1))(p, y)
    value = jax.jit(value)
    rng = np.random.default_rng(1)
    for name in ("features", "inducing", "variance", "noise"):
        part = getattr(p, name)
        for _ in range(4):
            # noise stays positive: a step is small against its smallest entry
            direction = jnp.asarray(rng.normal(size=part.shape))
            step = 1e-6
            ends = [value(p._replace(**{name: part + s * step * direction}), y) for s in (1, -1)]
            slope = float(ends[0] - ends[1]) / (2 * step)
            ours = float(jnp.sum(getattr(gradient, name) * direction))
            np.testing.assert_allclose(ours, slope, rtol=2e-6, atol=2e-6)
    direction = jnp.asarray(rng.normal(size=25))
    slope = float(value(p, y + 1e-6 * direction) - value(p, y - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(float(of_y @ direction), slope, rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_with_all_rows_as_inducing_points_it_is_the_exact_process(rule, kernel):
    p, y = process()
    p, mask = p._replace(inducing=p.features), jnp.ones(25)
    same, new = exactly(p), jnp.asarray(np.random.default_rng(5).normal(size=(40, 3)))
    np.testing.assert_allclose(
        sparse.log_marginal_likelihood(rule, kernel, True, p, y, mask),
        exact.log_marginal_likelihood(kernel, True, same, y, mask),
        atol=1e-6,
    )
    ours = sparse.condition(rule, kernel, True, p, y, mask)
    theirs = exact.condition(kernel, True, same, y, mask)
    for name in ("conditional_moments", "conditional_covariance"):
        found = getattr(sparse, name)(kernel, ours, new)
        expected = getattr(exact, name)(kernel, theirs, new)
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-6)
    found = sparse.left_out(rule, kernel, True, p, y, mask)
    expected = exact.left_out(kernel, True, same, y, mask)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, np.broadcast_to(right, left.shape), atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    points=st.sampled_from([1, 5, 20]),
    noise=st.floats(1e-4, 2.0),
    kernel=st.sampled_from(sorted(KERNELS)),
)
def test_vfe_never_exceeds_the_exact_log_likelihood(seed, points, noise, kernel):
    p, y = process(points=points, seed=seed, noise=noise)
    bound = float(sparse.log_marginal_likelihood("vfe", kernel, True, p, y, jnp.ones(25)))
    value = float(exact.log_marginal_likelihood(kernel, True, exactly(p), y, jnp.ones(25)))
    assert bound <= value + 1e-7 * abs(value)


@pytest.mark.parametrize("rule", RULES)
def test_predictions_are_those_of_the_dense_formulas(rule):
    """Q*' C^-1 y and sigma^2 - Q*' C^-1 Q* with Q* = K*m K_mm^-1 K_mn, mu in C and Q*."""
    p, y = process()
    new = np.random.default_rng(3).normal(size=(9, 3))
    variance, y = float(p.variance), np.asarray(y)
    _, C, _ = dense(rule, "rbf", p)
    inner = variance * correlation("rbf", p.inducing, p.inducing)
    cross = variance * correlation("rbf", p.features, p.inducing)
    at_new = variance * correlation("rbf", new, p.inducing)
    Q = at_new @ np.linalg.solve(inner, cross.T)
    with_mean, Q = C + 1.0 / float(p.mean_precision), Q + 1.0 / float(p.mean_precision)
    mean = Q @ np.linalg.solve(with_mean, y)
    prior = variance * correlation("rbf", new, new) + 1.0 / float(p.mean_precision)
    covariance = prior - Q @ np.linalg.solve(with_mean, Q.T)
    conditioned = sparse.condition(rule, "rbf", True, p, jnp.asarray(y), jnp.ones(25))
    found = sparse.conditional_covariance("rbf", conditioned, jnp.asarray(new))
    np.testing.assert_allclose(found[0], mean, rtol=1e-6)
    np.testing.assert_allclose(found[1], covariance, atol=1e-7)
    found = sparse.conditional_moments("rbf", conditioned, jnp.asarray(new))
    np.testing.assert_allclose(found[1], np.diag(covariance), atol=1e-7)


@pytest.mark.parametrize("rule", RULES)
def test_left_out_rows_are_predicted_from_the_others(rule):
    """Against dropping each row from the dense normal distribution of y."""
    p, y = process(rows=8)
    Q, C, _ = dense(rule, "rbf", p)
    with_mean = C + 1.0 / float(p.mean_precision)
    means, variances, unexplained = sparse.left_out(rule, "rbf", True, p, y, jnp.ones(8))
    expected = float(p.variance) - np.diag(Q) if rule == "vfe" else [0.0]
    np.testing.assert_allclose(unexplained, expected, atol=1e-7)
    y = np.asarray(y)
    for i in range(8):
        rest = np.arange(8) != i
        solved = np.linalg.solve(with_mean[np.ix_(rest, rest)], with_mean[rest, i])
        variance = with_mean[i, i] - with_mean[rest, i] @ solved
        np.testing.assert_allclose(means[i], solved @ y[rest], rtol=1e-6)
        np.testing.assert_allclose(variances[i], variance, rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_padding_changes_nothing(rule):
    p, y = process(rows=13)
    far = jnp.zeros((3, 3)).at[:, 0].set(1e4 * jnp.arange(1, 4))
    padded = p._replace(
        features=jnp.concatenate([p.features, far]), noise=jnp.append(p.noise, jnp.full(3, 0.3))
    )
    mask = jnp.append(jnp.ones(13), jnp.zeros(3))

    def value(p, y, mask):
        return sparse.log_marginal_likelihood(rule, "rbf", True, p, y, mask)

    plain, gradient = jax.value_and_grad(value)(p, y, jnp.ones(13))
    other, other_gradient = jax.value_and_grad(value)(padded, jnp.append(y, jnp.zeros(3)), mask)
    np.testing.assert_allclose(other, plain, rtol=1e-12)
    np.testing.assert_allclose(other_gradient.features[:13], gradient.features, atol=1e-10)
    np.testing.assert_allclose(other_gradient.features[13:], 0.0, atol=1e-12)
    np.testing.assert_allclose(other_gradient.inducing, gradient.inducing, atol=1e-10)
    np.testing.assert_allclose(other_gradient.variance, gradient.variance, rtol=1e-10)
    np.testing.assert_allclose(other_gradient.noise[:13], gradient.noise, rtol=1e-10)


@pytest.mark.parametrize("rule", RULES)
def test_blocks_change_nothing(rule, monkeypatch):
    """Three blocks, the last not full, as thousands of rows go through; one block elsewhere."""
    p, y = process()

    def everything():
        likelihood = partial(sparse.log_marginal_likelihood, rule, "matern32", True)
        found = jax.value_and_grad(likelihood, argnums=(0, 1))(p, y, jnp.ones(25))
        left_out = sparse.left_out(rule, "matern32", True, p, y, jnp.ones(25))
        return found, left_out, sparse.condition(rule, "matern32", True, p, y, jnp.ones(25))

    in_one = everything()
    monkeypatch.setattr(sparse, "_BLOCK", 10)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-10), everything(), in_one)


@pytest.mark.parametrize("rule", RULES)
def test_coincident_inducing_points_change_nothing(rule):
    p, y = process(points=5)
    twice = p._replace(inducing=jnp.concatenate([p.inducing, p.inducing[:2]]))
    found = sparse.log_marginal_likelihood(rule, "rbf", True, twice, y, jnp.ones(25))
    expected = sparse.log_marginal_likelihood(rule, "rbf", True, p, y, jnp.ones(25))
    np.testing.assert_allclose(found, expected, atol=1e-5)
