"""The one log density and its predictions against an independent implementation."""

import independent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvgp.infer.draws import Draws
from lvgp.model import Model, pack_rows
from lvgp.posterior import Posterior
from lvgp.priors import Priors
from lvgp.space import Encoded

pytestmark = pytest.mark.usefixtures("double_precision")

MODELS = {
    "mixed": Model(2, (4, 3), (2, 1)),
    "numeric only": Model(3, (), ()),
    "categories only": Model(0, (5, 4), (3, 2)),
    "matern52": Model(1, (4,), (2,), kernel="matern52"),
    "matern32": Model(1, (4,), (2,), kernel="matern32"),
    "likelihood": Model(2, (4,), (2,), plug_in_likelihood=True),
}


def rows_of(model, rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.random((rows, model.n_quantitative))
    t = np.column_stack([rng.integers(0, L, rows) for L in model.n_levels] or [np.zeros((rows, 0))])
    return x, t.astype(int), rng.normal(size=rows)


def vector_of(model, seed=1):
    vector = 0.7 * np.random.default_rng(seed).normal(size=model.size)
    vector[1] -= 3.0
    return vector


@pytest.mark.parametrize("name", MODELS)
def test_log_density_matches_an_independent_one(name):
    model = MODELS[name]
    x, t, y = rows_of(model, 21)
    for seed in range(3):
        vector = vector_of(model, seed)
        ours = model.log_density(vector, pack_rows(x, t, y), Priors())
        expected = independent.log_density(model, vector, x, t, y)
        np.testing.assert_allclose(ours, expected, rtol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_gradient_matches_finite_differences_in_every_coordinate(name):
    model = MODELS[name]
    rows = pack_rows(*rows_of(model, 19))
    vector = jnp.asarray(vector_of(model))
    density = jax.jit(lambda v: model.log_density(v, rows, Priors()))
    gradient = jax.grad(lambda v: model.log_density(v, rows, Priors()))(vector)
    step = 1e-5
    steps = step * np.eye(model.size)
    slopes = [(density(vector + s) - density(vector - s)) / (2 * step) for s in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-6)


def test_flat_prior_is_flat_inside_its_box_and_steep_outside():
    model = MODELS["likelihood"]
    inside = vector_of(model)
    assert model.log_prior(jnp.asarray(inside), Priors()) == 0.0
    for index in (0, 1, 2, model.raw_start):
        outside = inside.copy()
        outside[index] = 40.0
        assert model.log_prior(jnp.asarray(outside), Priors()) < -100


def test_rotating_and_shifting_the_latents_keeps_the_likelihood():
    model = Model(1, (5,), (2,))
    rows = pack_rows(*rows_of(model, 17))
    vector = vector_of(model)
    moved = vector.copy()
    turn = np.array([[np.cos(2.0), -np.sin(2.0)], [np.sin(2.0), np.cos(2.0)]])
    raw = vector[model.raw_start :].reshape(5, 2)
    moved[model.raw_start :] = (raw @ turn + [3.0, -1.0]).ravel()
    before, after = (model.log_likelihood(v, rows, Priors()) for v in (vector, moved))
    np.testing.assert_allclose(after, before, rtol=1e-10)


def test_names_cover_the_vector_in_order():
    model = MODELS["mixed"]
    assert model.size == 2 + 2 + 2 + 4 * 2 + 3 * 1
    assert len(set(model.names)) == model.size
    assert model.names[: model.raw_start] == (
        "log_variance",
        "log_noise",
        "log_lengthscale[0]",
        "log_lengthscale[1]",
        "log_precision[0]",
        "log_precision[1]",
    )


@pytest.mark.parametrize("name", MODELS)
def test_predictions_match_textbook_formulas(name):
    model = MODELS[name]
    x, t, y = rows_of(model, 21)
    x_new, t_new, _ = rows_of(model, 9, seed=7)
    vector = vector_of(model)
    draws = Draws("map", vector[None], np.zeros(1), seed=0)
    posterior = Posterior(model, Priors(), draws, Encoded(x, t), y, y_mean=3.0, y_scale=2.0)
    new = Encoded(x_new, t_new)
    mean, covariance = independent.predict(model, vector, (x, t), y, (x_new, t_new))
    ours, sd, _ = posterior.summary(new, np.empty(0))
    np.testing.assert_allclose(ours, 3 + 2 * mean, rtol=1e-9)
    np.testing.assert_allclose(sd, 2 * np.sqrt(np.diag(covariance)), rtol=1e-8)
    ours, ours_covariance = posterior.mean_and_covariance(new)
    np.testing.assert_allclose(ours, 3 + 2 * mean, rtol=1e-9)
    np.testing.assert_allclose(ours_covariance, 4 * covariance, rtol=1e-7, atol=1e-9)
    noise = independent.unpack(model, vector)["noise"]
    noisy = posterior.summary(new, np.empty(0), include_noise=True).sd
    np.testing.assert_allclose(noisy**2, sd**2 + 4 * noise, rtol=1e-9)
