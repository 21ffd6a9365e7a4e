"""The exact GP against automatic differentiation, finite differences and textbook formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from lvgp import exact
from lvgp.kernels import KERNELS

pytestmark = pytest.mark.usefixtures("double_precision")


def process(rows, columns, noise=0.01, mean_precision=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return exact.Process(
        features=jnp.asarray(rng.normal(size=(rows, columns))),
        variance=jnp.asarray(1.7),
        noise=jnp.asarray(noise * rng.uniform(0.5, 1.5, rows)),
        mean_precision=jnp.asarray(mean_precision),
    ), jnp.asarray(rng.normal(size=rows))


def plain_log_likelihood(kernel, integrate_mean, p, y):
    """The same likelihood for automatic differentiation, through jnp.linalg.cholesky."""
    differences = p.features[:, None, :] - p.features[None, :, :]
    # the square root in a Matern kernel has no derivative at zero: keep the diagonal away from it
    diagonal = jnp.eye(len(y), dtype=bool)
    squared = jnp.where(diagonal, 1.0, jnp.sum(differences**2, axis=-1))
    correlation = jnp.where(diagonal, 1.0, KERNELS[kernel](squared)[0])
    C = p.variance * correlation + p.noise * jnp.eye(len(y))
    L = jnp.linalg.cholesky(C)
    solved = jax.scipy.linalg.solve_triangular(L, jnp.stack([y, jnp.ones_like(y)], 1), lower=True)
    a, b = solved[:, 1] @ solved[:, 1], solved[:, 0] @ solved[:, 1]
    c = a + p.mean_precision
    value = solved[:, 0] @ solved[:, 0] - b * b / c + 2 * jnp.sum(jnp.log(jnp.diagonal(L)))
    if integrate_mean:
        value = value + jnp.log(c / p.mean_precision)
    return -0.5 * (value + len(y) * jnp.log(2 * jnp.pi))


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 33, 64, 100, 131])
def test_triangular_inverse(rows):
    rng = np.random.default_rng(rows)
    L = np.tril(rng.normal(size=(rows, rows))) / np.sqrt(rows) + 2 * np.eye(rows)
    inverse = np.asarray(jax.jit(exact.triangular_inverse)(jnp.asarray(L)))
    np.testing.assert_allclose(inverse @ L, np.eye(rows), atol=1e-12)
    assert (np.triu(inverse, 1) == 0).all()


@pytest.mark.parametrize("rows", [*range(1, 300), 1000, 1024, 5000, 40_000])
def test_padded_size_holds_the_rows_and_wastes_little(rows):
    size = exact.padded_size(rows)
    assert size >= rows
    assert size - rows < max(15 if rows < 40 else 10, rows / 15)
    assert exact.padded_size(size) == size or rows > 258


@pytest.mark.parametrize("rows", sorted({*range(5, 257, 5), *range(8, 257, 8), 300, 500, 1000}))
def test_adding_a_row_or_two_to_a_round_number_keeps_the_size(rows):
    assert exact.padded_size(rows) == exact.padded_size(rows + 1) == exact.padded_size(rows + 2)


def test_adding_a_row_or_two_mostly_keeps_the_size():
    kept = np.mean([exact.padded_size(n) == exact.padded_size(n + 2) for n in range(8, 2000)])
    assert kept > 0.75


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("integrate_mean", "precision"), [(True, 1.0), (True, 0.3), (False, 0.0)])
@pytest.mark.parametrize(
    "rows", [5, pytest.param(32, marks=pytest.mark.long), exact._ROWS_WORTH_STRIPS + 11]
)
def test_value_and_gradient_match_automatic_differentiation(
    kernel, integrate_mean, precision, rows
):
    p, y = process(rows, 3, mean_precision=precision)
    mask = jnp.ones(rows)

    def ours(p, y):
        return exact.log_marginal_likelihood(kernel, integrate_mean, p, y, mask)

    def plain(p, y):
        return plain_log_likelihood(kernel, integrate_mean, p, y)

    value, (gradient, y_gradient) = jax.jit(jax.value_and_grad(ours, argnums=(0, 1)))(p, y)
    expected, (expected_gradient, expected_y) = jax.jit(jax.value_and_grad(plain, argnums=(0, 1)))(
        p, y
    )
    np.testing.assert_allclose(value, expected, rtol=1e-11)
    np.testing.assert_allclose(ours(p, y), expected, rtol=1e-11)
    for name in ("features", "variance", "noise"):
        np.testing.assert_allclose(
            getattr(gradient, name), getattr(expected_gradient, name), rtol=1e-8, atol=1e-8
        )
    np.testing.assert_allclose(y_gradient, expected_y, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradient_matches_finite_differences(kernel):
    p, y = process(20, 2, noise=0.05)
    mask = jnp.ones(20)
    value = jax.jit(lambda p: exact.log_marginal_likelihood(kernel, True, p, y, mask))
    gradient = jax.grad(lambda p: exact.log_marginal_likelihood(kernel, True, p, y, mask))(p)
    step = 1e-5
    for row, column in [(0, 0), (7, 1), (19, 0)]:
        ends = [
            value(p._replace(features=p.features.at[row, column].add(sign * step)))
            for sign in (1, -1)
        ]
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(gradient.features[row, column], slope, rtol=1e-6, atol=1e-7)
    for name in ("variance", "noise"):
        up = value(p._replace(**{name: getattr(p, name) * (1 + step)}))
        down = value(p._replace(**{name: getattr(p, name) * (1 - step)}))
        slope = (up - down) / (2 * step)
        ours = jnp.sum(getattr(gradient, name) * getattr(p, name))
        np.testing.assert_allclose(ours, slope, rtol=1e-6)


def test_integrated_mean_is_a_constant_in_the_kernel():
    p, y = process(12, 2, mean_precision=0.25)
    C = exact.covariance("rbf", p)[0]
    expected = stats.multivariate_normal(np.zeros(12), np.asarray(C) + 4.0).logpdf(y)
    ours = exact.log_marginal_likelihood("rbf", True, p, y, jnp.ones(12))
    np.testing.assert_allclose(ours, expected, rtol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("integrate_mean", [True, False])
def test_padding_changes_nothing(kernel, integrate_mean):
    p, y = process(13, 2, mean_precision=1.0 if integrate_mean else 0.0)
    far = 1e4 * np.arange(1, 4)[:, None] * np.ones((1, 2))
    padded = p._replace(
        features=jnp.concatenate([p.features, far]), noise=jnp.append(p.noise, jnp.full(3, 0.3))
    )
    padded_y, mask = jnp.append(y, jnp.zeros(3)), jnp.append(jnp.ones(13), jnp.zeros(3))

    def value(p, y, mask):
        return exact.log_marginal_likelihood(kernel, integrate_mean, p, y, mask)

    value_and_gradient = jax.jit(jax.value_and_grad(value))
    plain, plain_gradient = value_and_gradient(p, y, jnp.ones(13))
    other, other_gradient = value_and_gradient(padded, padded_y, mask)
    np.testing.assert_allclose(other, plain, rtol=1e-12)
    np.testing.assert_allclose(value(padded, padded_y, mask), plain, rtol=1e-12)
    np.testing.assert_allclose(other_gradient.variance, plain_gradient.variance, rtol=1e-9)
    np.testing.assert_allclose(other_gradient.noise[:13], plain_gradient.noise, rtol=1e-9)
    np.testing.assert_allclose(other_gradient.noise[13:], 0.0, atol=1e-12)
    np.testing.assert_allclose(
        other_gradient.features[:13], plain_gradient.features, rtol=1e-8, atol=1e-9
    )
    new = jnp.asarray(np.random.default_rng(5).normal(size=(4, 2)))
    for moments in (exact.conditional_moments, exact.conditional_covariance):
        expected = moments(kernel, exact.condition(kernel, integrate_mean, p, y, jnp.ones(13)), new)
        found = moments(
            kernel, exact.condition(kernel, integrate_mean, padded, padded_y, mask), new
        )
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_not_positive_definite_is_nan_and_not_a_wrong_number():
    p, y = process(6, 1, noise=0.0)
    p = p._replace(features=jnp.zeros((6, 1)))
    assert np.isnan(exact.log_marginal_likelihood("rbf", True, p, y, jnp.ones(6)))


def test_variance_shrinks_to_zero_at_noiseless_rows_and_grows_to_the_prior_far_away():
    p, y = process(8, 2, noise=1e-10)
    conditioned = exact.condition("rbf", True, p, y, jnp.ones(8))
    mean, variance = exact.conditional_moments("rbf", conditioned, p.features)
    np.testing.assert_allclose(mean, y, atol=1e-6)
    assert (np.asarray(variance) < 1e-6).all()
    far = jnp.full((1, 2), 100.0)
    mean, variance = exact.conditional_moments("rbf", conditioned, far)
    np.testing.assert_allclose(mean, conditioned.mean, rtol=1e-12)
    np.testing.assert_allclose(variance, p.variance + conditioned.mean_variance, rtol=1e-12)
