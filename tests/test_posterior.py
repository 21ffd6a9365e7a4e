"""The predictive mixture: moments and quantiles of several draws."""

import numpy as np
import pytest
from scipy import optimize, stats

from lvgp.infer.draws import Draws
from lvgp.model import Model
from lvgp.posterior import Components, Posterior, mixture_quantile
from lvgp.priors import Priors
from lvgp.space import Encoded


def mixture(draws, rows, seed=0):
    rng = np.random.default_rng(seed)
    return Components(3 * rng.normal(size=(draws, rows)), rng.gamma(1.0, size=(draws, rows)))


@pytest.mark.parametrize("draws", [1, 2, 50])
@pytest.mark.parametrize("probability", [1e-6, 0.025, 0.5, 0.9, 0.999])
def test_mixture_quantile_inverts_the_distribution_function(draws, probability):
    components = mixture(draws, 6)
    values = mixture_quantile(components, probability)
    for row, value in enumerate(values):
        means, sds = components.means[:, row], components.sds[:, row]

        def excess(x, means=means, sds=sds):
            return stats.norm.cdf(x, means, sds).mean() - probability

        expected = optimize.brentq(excess, -100, 100, xtol=1e-13, rtol=1e-14)
        np.testing.assert_allclose(value, expected, rtol=1e-8, atol=1e-9)


def test_mixture_quantile_of_separated_and_of_degenerate_components():
    apart = Components(np.array([[-1e6], [1e6]]), np.array([[1e-6], [1e-6]]))
    np.testing.assert_allclose(mixture_quantile(apart, 0.25), -1e6)
    np.testing.assert_allclose(mixture_quantile(apart, 0.75), 1e6)
    certain = Components(np.array([[2.0]]), np.array([[0.0]]))
    np.testing.assert_allclose(mixture_quantile(certain, 0.9), 2.0)


def test_quantiles_agree_with_the_papers_sampling_algorithm():
    """Algorithm 2 with 200 000 samples; |z| < 5 for 6 quantiles: false alarms below 4e-6."""
    components = mixture(30, 3, seed=3)
    rng = np.random.default_rng(4)
    size = 200_000
    picked = rng.integers(30, size=size)
    for row in range(3):
        means, sds = components.means[:, row], components.sds[:, row]
        samples = rng.normal(means[picked], sds[picked])
        for probability in (0.025, 0.975):
            value = mixture_quantile(components, probability)[row]
            share = np.mean(samples <= value)
            error = np.sqrt(probability * (1 - probability) / size)
            assert abs(share - probability) < 5 * error


@pytest.fixture(scope="module")
def several_draws():
    rng = np.random.default_rng(0)
    model = Model(1, (4,), (2,))
    vectors = 0.6 * rng.normal(size=(5, model.size))
    vectors[:, 1] -= 3
    training = Encoded(rng.random((12, 1)), rng.integers(0, 4, (12, 1)))
    y = rng.normal(size=12)
    draws = Draws("bayes", vectors, np.zeros(5), seed=0)
    return Posterior(model, Priors(), draws, training, y, y_mean=10.0, y_scale=4.0)


NEW = Encoded(np.linspace(0, 1, 7)[:, None], np.array([0, 1, 2, 3, 0, 1, 2])[:, None])


def test_mixture_moments_combine_the_single_draws(several_draws):
    singles = []
    for draw in range(5):
        one = Draws("bayes", several_draws.draws.vectors[[draw]], np.zeros(1), seed=0)
        singles.append(several_draws.with_draws(one))
    moments = [single.mean_and_covariance(NEW) for single in singles]
    means = np.array([mean for mean, _ in moments])
    covariance = np.mean([c for _, c in moments], axis=0) + np.cov(means.T, bias=True)
    mean, sd = several_draws.mean_and_sd(NEW)
    np.testing.assert_allclose(mean, means.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(sd, np.sqrt(np.diag(covariance)), rtol=1e-8)
    joint_mean, joint_covariance = several_draws.mean_and_covariance(NEW)
    np.testing.assert_allclose(joint_mean, mean, rtol=1e-10)
    np.testing.assert_allclose(joint_covariance, covariance, rtol=1e-7, atol=1e-8)


def test_joint_draws_have_the_mixtures_moments(several_draws):
    """20 000 draws; 5 standard errors on 7 means and 28 covariances: false alarms below 3e-5."""
    samples = several_draws.sample(NEW, 20_000, seed=1)
    mean, covariance = several_draws.mean_and_covariance(NEW)
    errors = (samples.mean(axis=1) - mean) / np.sqrt(np.diag(covariance) / 20_000)
    assert np.abs(errors).max() < 5
    centred = samples - mean[:, None]
    products = centred[:, None, :] * centred[None, :, :]
    errors = (products.mean(axis=-1) - covariance) / (products.std(axis=-1) / np.sqrt(20_000))
    assert np.abs(errors).max() < 5


def test_long_tables_give_the_same_as_short_ones(several_draws):
    rng = np.random.default_rng(2)
    long = Encoded(rng.random((2500, 1)), rng.integers(0, 4, (2500, 1)))
    mean, sd = several_draws.mean_and_sd(long)
    for chosen in (slice(0, 3), slice(1022, 1027), slice(2497, 2500)):
        part = several_draws.mean_and_sd(Encoded(long.x[chosen], long.t[chosen]))
        np.testing.assert_allclose(part[0], mean[chosen], rtol=1e-11)
        np.testing.assert_allclose(part[1], sd[chosen], rtol=1e-8)
