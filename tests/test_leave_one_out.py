"""Leave-one-out predictions against conditioning on the other rows for real."""

from __future__ import annotations

import independent
import numpy as np
import pytest

from lvgp.infer.draws import Draws
from lvgp.leave_one_out import leave_one_out, pointwise
from lvgp.mixture import mixture_moments
from lvgp.model import Model
from lvgp.posterior import Posterior
from lvgp.priors import Priors
from lvgp.space import Encoded


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
