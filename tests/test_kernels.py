import jax
import jax.numpy as jnp
import numpy as np
import pytest
from independent import CORRELATIONS

from lvgp.kernels import KERNELS, squared_distances

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize("name", KERNELS)
def test_value_and_slope(name):
    squared = jnp.asarray([1e-8, 1e-3, 0.2, 1.0, 7.5, 60.0])
    value, slope = KERNELS[name](squared)
    np.testing.assert_allclose(value, CORRELATIONS[name](np.sqrt(squared)), rtol=1e-13)
    numeric = jax.vmap(jax.grad(lambda s: KERNELS[name](s)[0]))(squared)
    np.testing.assert_allclose(slope, numeric, rtol=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_coincident_rows_have_correlation_one_and_a_finite_slope(name):
    value, slope = KERNELS[name](jnp.zeros(1))
    assert value[0] == 1.0
    assert np.isfinite(slope[0])
    assert slope[0] < 0


def test_squared_distances_match_differences():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(7, 3)), rng.normal(size=(5, 3))
    expected = ((left[:, None] - right[None]) ** 2).sum(-1)
    np.testing.assert_allclose(squared_distances(left, right), expected, rtol=1e-12, atol=1e-13)
    assert (np.asarray(squared_distances(left, left)) >= 0).all()
