"""MLE and MAP against maximising an independently written density."""

import independent
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from lvgp import compute, problems
from lvgp.errors import NumericalError, NumericalWarning
from lvgp.infer import optimize, quasi_newton
from lvgp.model import Model, pack_rows
from lvgp.priors import Priors


def small_problem(plug_in_likelihood):
    rng = np.random.default_rng(3)
    model = Model(1, (3,), (1,), plug_in_likelihood=plug_in_likelihood)
    x, t = rng.random((24, 1)), rng.integers(0, 3, (24, 1))
    y = np.sin(5 * x[:, 0]) + np.array([0.0, 0.2, 1.5])[t[:, 0]] + 0.1 * rng.normal(size=24)
    return model, x, t, (y - y.mean()) / y.std(ddof=1)


@pytest.mark.parametrize("plug_in_likelihood", [False, True], ids=["map", "mle"])
def test_mode_agrees_with_maximising_an_independent_density(plug_in_likelihood):
    model, x, t, y = small_problem(plug_in_likelihood)
    with compute.scope():
        draws = optimize.find_mode(model, pack_rows(x, t, y), Priors(), restarts=6, seed=0)
    ours = draws.vectors[0]

    def negative(vector):
        return -independent.log_density(model, vector, x, t, y)

    starts = optimize.starting_points(model, Priors(), 6, seed=0)
    best = min(
        (minimize(negative, start, method="L-BFGS-B") for start in starts), key=lambda r: r.fun
    )
    assert draws.optimization.log_density >= -best.fun - 1e-6
    np.testing.assert_allclose(-negative(ours), draws.optimization.log_density, rtol=1e-9)
    np.testing.assert_allclose(approx_fprime(ours, negative, 1e-6), 0.0, atol=2e-2)
    found = minimize(negative, ours, method="L-BFGS-B", options={"ftol": 1e-15})
    assert -found.fun <= draws.optimization.log_density + 1e-5


def test_from_the_same_starts_at_least_as_good_as_scipy():
    problem = problems.borehole()
    X, y = problem.design(per_level=2, seed=0)
    x, t, _ = problem.space.encode(X)
    y = ((y - y.mean()) / y.std()).to_numpy()
    model = Model(6, (16,), (2,))
    with compute.scope():
        rows = pack_rows(x, t, y)
        draws = optimize.find_mode(model, rows, Priors(), restarts=8, seed=0)
        best = -np.inf
        for start in optimize.starting_points(model, Priors(), 8, seed=0):
            found = minimize(_scipy_objective(model, rows), start, jac=True, method="L-BFGS-B")
            best = max(best, -found.fun)
    assert draws.optimization.log_density >= best - 1e-6


def _scipy_objective(model, rows):
    import jax

    value_and_gradient = jax.jit(
        jax.value_and_grad(lambda v: -model.log_density(v, rows, Priors()))
    )

    def objective(vector):
        value, gradient = value_and_gradient(vector)
        return float(value), np.asarray(gradient)

    return objective


def test_result_does_not_depend_on_the_number_of_workers():
    model, x, t, y = small_problem(plug_in_likelihood=False)
    with compute.scope():
        one, three = (
            optimize.find_mode(model, pack_rows(x, t, y), Priors(), 5, seed=1, workers=workers)
            for workers in (1, 3)
        )
    np.testing.assert_array_equal(one.vectors, three.vectors)
    assert one.optimization.log_densities == three.optimization.log_densities


def test_summary_counts_starts_and_keeps_the_best():
    model, x, t, y = small_problem(plug_in_likelihood=False)
    with compute.scope():
        draws = optimize.find_mode(model, pack_rows(x, t, y), Priors(), restarts=7, seed=2)
    search = draws.optimization
    assert search.starts == 7
    assert search.failed == 0
    assert search.reached + search.reached_refined >= 1
    assert search.log_density >= max(search.log_densities)
    assert search.log_density >= max(search.refined_log_densities)


def test_singular_covariance_is_met_with_jitter_that_is_reported():
    """Rows 0 and 1 coincide and no noise is allowed: only jitter makes the covariance definite."""
    model = Model(1, (), ())
    x = np.repeat(np.linspace(0, 1, 6), 4)[:, None]
    y = np.sin(3 * x[:, 0])
    y = (y - y.mean()) / y.std()
    silent = optimize.starting_points

    def no_noise(model, priors, restarts, seed):
        starts = silent(model, priors, restarts, seed)
        starts[:, 1] = -800.0
        return starts

    with compute.scope(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimize, "starting_points", no_noise)
        with pytest.warns(NumericalWarning, match="not positive definite"):
            draws = optimize.find_mode(
                model, pack_rows(x, np.zeros((24, 0)), y), Priors(noise_floor=0.0), 2, seed=0
            )
    assert draws.jitter > 0
    assert np.isfinite(draws.vectors).all()


def test_all_starts_failing_is_an_error_with_advice():
    model, x, t, y = small_problem(plug_in_likelihood=False)
    broken = np.full_like(y, np.nan)
    with compute.scope(), pytest.raises(NumericalError, match="near-duplicate rows"):
        optimize.find_mode(model, pack_rows(x, t, broken), Priors(), restarts=2, seed=0)


def rosenbrock(point):
    a, b = point[:-1], point[1:]
    value = jnp.sum(100 * (b - a**2) ** 2 + (1 - a) ** 2)
    gradient = jnp.zeros_like(point)
    gradient = gradient.at[:-1].add(-400 * a * (b - a**2) - 2 * (1 - a))
    return value, gradient.at[1:].add(200 * (b - a**2))


@pytest.mark.usefixtures("double_precision")
def test_minimizer_finds_the_minimum_of_a_curved_valley():
    start = jnp.asarray(np.random.default_rng(0).normal(size=10))
    found = quasi_newton.minimize(rosenbrock, start, 1e-12)
    assert found.converged
    np.testing.assert_allclose(found.point, 1.0, atol=1e-5)


@pytest.mark.usefixtures("double_precision")
def test_minimizer_steps_back_from_where_the_function_is_undefined():
    def log_barrier(point):
        return jnp.sum(point - jnp.log(point)), 1 - 1 / point

    found = quasi_newton.minimize(log_barrier, jnp.asarray([30.0, 0.01]), 1e-12)
    np.testing.assert_allclose(found.point, 1.0, atol=1e-5)
    undefined = quasi_newton.minimize(log_barrier, jnp.asarray([-1.0, 1.0]), 1e-12)
    assert np.isnan(undefined.value)
    assert undefined.evaluations == 1
