"""Leave-one-out predictions against conditioning on the other rows for real."""

from __future__ import annotations

import independent
import jax.numpy as jnp
import numpy as np
import pytest

from lvgp.infer.draws import Draws
from lvgp.leave_one_out import leave_one_out, pointwise
from lvgp.mixture import mixture_moments
from lvgp.model import Model, pack_rows
from lvgp.posterior import Posterior
from lvgp.priors import Priors
from lvgp.space import Encoded
from lvgp.sparse import Inducing


def posterior(draws, seed=0, rows=13):
    rng = np.random.default_rng(seed)
    model = Model(1, (4,), (2,))
    vectors = 0.4 * rng.normal(size=(draws, model.size))
    vectors[:, 1] -= 2
    training = Encoded(rng.random((rows, 1)), rng.integers(0, 4, (rows, 1)))
    made = Draws("bayes" if draws > 1 else "map", vectors, np.zeros(draws), seed=0)
    y = rng.normal(size=rows)
    return Posterior(model, Priors(), made, training, y, y_mean=5.0, y_scale=3.0)


def test_closed_form_is_what_conditioning_on_the_other_rows_gives():
    fitted = posterior(3)
    found = pointwise(fitted, fitted.draws.vectors)
    x, t, _ = fitted.training
    for draw, vector in enumerate(fitted.draws.vectors):
        noise = independent.unpack(fitted.model, vector)["noise"]
        assert found.noise[draw] == pytest.approx(noise)
        for row in range(len(fitted.y)):
            others = np.arange(len(fitted.y)) != row
            mean, covariance = independent.predict(
                fitted.model,
                vector,
                (x[others], t[others]),
                fitted.y[others],
                (x[[row]], t[[row]]),
            )
            assert found.means[draw, row] == pytest.approx(mean[0], rel=1e-7, abs=1e-8)
            assert found.variances[draw, row] == pytest.approx(covariance[0, 0] + noise, rel=1e-7)


def test_weights_turn_the_posterior_into_one_without_the_row():
    """Self-normalised importance weights 1 / p(y_i | rest), untouched by smoothing when tame."""
    fitted = posterior(800)
    left_out = leave_one_out(fitted, include_noise=True)
    log = pointwise(fitted, fitted.draws.vectors).log_densities(fitted.y)
    raw = np.exp(-log - (-log).max(axis=0))
    raw /= raw.sum(axis=0)
    np.testing.assert_allclose(left_out.weights.sum(axis=0), 1.0)
    tame = left_out.pareto_k < 0.5
    assert tame.any()
    expected = (raw * left_out.components.means).sum(axis=0)
    mean, sd = mixture_moments(left_out.components, left_out.weights)
    np.testing.assert_allclose(mean[tame], expected[tame], atol=0.05 * sd[tame].max())


def test_noise_widens_and_a_point_estimate_needs_no_weights():
    fitted = posterior(1)
    with_noise, without = (leave_one_out(fitted, include) for include in (True, False))
    noise = 9 * independent.unpack(fitted.model, fitted.draws.vectors[0])["noise"]
    np.testing.assert_allclose(
        with_noise.components.sds**2 - without.components.sds**2, noise, rtol=1e-6
    )
    assert np.isnan(with_noise.pareto_k).all()


@pytest.mark.parametrize("rule", [None, "fitc", "vfe"])
@pytest.mark.usefixtures("double_precision")
def test_the_weights_are_what_a_row_adds_to_the_likelihood_that_was_sampled(rule):
    """log p(y) - log p(y without row i), from two likelihoods; some inputs are repeated."""
    rng = np.random.default_rng(3)
    model = Model(1, (4,), (2,), approximation=rule)
    distinct = np.concatenate([rng.random((7, 1)), rng.integers(0, 4, (7, 1))], axis=1)
    inputs = rng.permutation(np.repeat(distinct, [1, 1, 3, 2, 1, 1, 1], axis=0))
    x, t, y = inputs[:, :1], inputs[:, 1:].astype(int), rng.normal(size=len(inputs))
    inducing = rule and Inducing(rng.random((3, 1)), (rng.dirichlet(np.ones(4), 3),))
    vectors = 0.4 * rng.normal(size=(2, model.size)) - 2.0 * (np.arange(model.size) == 1)
    draws = Draws("bayes", vectors, np.zeros(2), seed=0, inducing=inducing)
    fitted = Posterior(model, Priors(), draws, Encoded(x, t), y, y_mean=0.0, y_scale=1.0)
    found = pointwise(fitted, vectors).log_shares(y)

    def likelihood(vector, kept):
        rows = pack_rows(x[kept], t[kept], y[kept], inducing=inducing)
        return float(model.log_likelihood(jnp.asarray(vector), rows, Priors()))

    for draw, vector in enumerate(vectors):
        whole = likelihood(vector, np.arange(len(y)))
        for row in range(len(y)):
            without = likelihood(vector, np.delete(np.arange(len(y)), row))
            assert found[draw, row] == pytest.approx(whole - without, abs=1e-7)
