"""The predictive mixture: moments and quantiles of several draws."""

import dataclasses

import independent
import numpy as np
import pytest
from scipy import optimize, stats

from lvgp import exact
from lvgp.infer.draws import Convergence, Draws, Sampling
from lvgp.mixture import Components, mixture_quantile
from lvgp.model import Model
from lvgp.posterior import Posterior
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


CHAINS = Sampling(
    sampler="nuts",
    warmup=10,
    acceptance=np.ones((4, 1200)),
    steps=np.ones((4, 1200), int),
    divergent=np.zeros((4, 1200), bool),
    energy=np.full((4, 1200), np.nan),
    step_sizes=(1.0,) * 4,
    length=1.0,
    most_steps=100,
    ended="converged",
    convergence=Convergence(np.ones(1), np.ones(1), np.ones(1)),
    gradients=1,
    seconds=1.0,
    warmup_seconds=0.5,
)


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
    mean, sd, _ = several_draws.summary(NEW, np.empty(0))
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
    mean, sd, quantiles = several_draws.summary(long, np.array([0.1, 0.9]))
    for chosen in (slice(0, 3), slice(1022, 1027), slice(2497, 2500)):
        few = Encoded(long.x[chosen], long.t[chosen])
        part = several_draws.summary(few, np.array([0.1, 0.9]))
        np.testing.assert_allclose(part.mean, mean[chosen], rtol=1e-11)
        np.testing.assert_allclose(part.sd, sd[chosen], rtol=1e-8)
        np.testing.assert_allclose(part.quantiles, quantiles[chosen], rtol=1e-8)


def test_factors_that_do_not_fit_in_memory_are_computed_block_by_block(several_draws, monkeypatch):
    expected = several_draws.summary(NEW, np.array([0.3]))
    joint = several_draws.mean_and_covariance(NEW)
    one = 8 * exact.padded_size(12) ** 2
    monkeypatch.setattr("lvgp.posterior._CACHED_BYTES", 0)
    monkeypatch.setattr("lvgp.posterior._BLOCK_BYTES", 2 * one)
    blockwise = dataclasses.replace(several_draws)
    for ours, whole in zip(blockwise.summary(NEW, np.array([0.3])), expected, strict=True):
        np.testing.assert_allclose(ours, whole, rtol=1e-12)
    for ours, whole in zip(blockwise.mean_and_covariance(NEW), joint, strict=True):
        np.testing.assert_allclose(ours, whole, rtol=1e-9, atol=1e-12)
    assert "_cached_blocks" not in vars(blockwise)


def test_at_most_1000_draws_are_predicted_from_as_many_of_each_chain():
    draws = Draws("bayes", np.zeros((4800, 3)), np.zeros(4800), seed=0, sampling=CHAINS)
    kept = draws.thinned(1000)
    assert len(kept) == len(set(kept)) == 1000
    assert (np.bincount(kept // 1200) == 250).all()
    assert {0, 1199, 1200, 4799} <= set(kept)


# levels without data


def drawn_by_hand(posterior, draw, level_latents, x):
    """Mean and variance of f at x for a level at the given latents, from the textbook formulas."""
    vector = posterior.draws.vectors[draw]
    parameters = independent.unpack(posterior.model, vector)
    parameters["z"] = [np.vstack([parameters["z"][0], level_latents])]
    train, new = tuple(posterior.training[:2]), (x, np.full((len(x), 1), 4))
    C = independent.kernel("rbf", train, train, parameters) + 1.0
    C += parameters["noise"] * np.eye(len(posterior.y))
    cross = independent.kernel("rbf", new, train, parameters) + 1.0
    mean = cross @ np.linalg.solve(C, posterior.y)
    explained = np.einsum("ij,ji->i", cross, np.linalg.solve(C, cross.T))
    return mean, parameters["sigma2"] + 1.0 - explained


def test_unknown_level_is_integrated_over_its_prior_given_gamma(several_draws):
    """Against 4000 latents a draw from N(0, 1 / (L gamma)), by hand. 512 + 20 000 draws; five
    standard errors on 3 means: false alarms below 2e-6."""
    x = np.array([[0.1], [0.5], [0.9]])
    found = several_draws.summary(Encoded(x, np.full((3, 1), 4), (("new",),)), np.empty(0))
    rng = np.random.default_rng(5)
    means, variances = [], []
    for draw in range(5):
        gamma = np.exp(several_draws.draws.vectors[draw, 3])
        for _ in range(400):
            latents = rng.standard_normal(2) / np.sqrt(4 * gamma)
            mean, variance = drawn_by_hand(several_draws, draw, latents, x)
            means.append(mean)
            variances.append(variance)
    means, variances = np.array(means), np.array(variances)
    expected = 10 + 4 * means.mean(axis=0)
    error = 4 * means.std(axis=0) * np.sqrt(1 / 512 + 1 / 2000)
    assert (np.abs(found.mean - expected) < 5 * error).all()
    sd = 4 * np.sqrt(variances.mean(axis=0) + means.var(axis=0))
    np.testing.assert_allclose(found.sd, sd, rtol=0.15)
    # the levels with data are known better
    known = several_draws.summary(Encoded(x, np.zeros((3, 1), int)), np.empty(0))
    assert (found.sd > known.sd).all()


def test_a_row_with_an_unknown_level_is_predicted_the_same_in_any_company(several_draws):
    x = np.array([[0.2], [0.7]])
    alone = several_draws.summary(Encoded(x[1:], np.array([[4]]), (("b",),)), np.array([0.05]))
    together = several_draws.summary(
        Encoded(x, np.array([[4], [5]]), (("a", "b"),)), np.array([0.05])
    )
    np.testing.assert_allclose(alone.quantiles[0], together.quantiles[1], rtol=1e-9)
    assert together.mean[0] != pytest.approx(together.mean[1])


def test_joint_draws_share_the_latents_of_an_unknown_level(several_draws):
    """Rows of one unknown level at the same x are the same f; of two levels they are not."""
    x = np.full((3, 1), 0.4)
    samples = several_draws.sample(Encoded(x, np.array([[4], [4], [5]]), (("a", "b"),)), 50, seed=0)
    np.testing.assert_allclose(samples[0], samples[1], atol=1e-5)
    assert np.abs(samples[0] - samples[2]).min() > 1e-5


def test_declared_level_without_rows_widens_the_intervals_of_a_point_estimate(several_draws):
    training = several_draws.training
    seen = training.t[:, 0] != 3
    kept = Encoded(training.x[seen], training.t[seen])
    vector = several_draws.draws.vectors[[0]].copy()
    vector[:, -2:] = 0.0  # where the optimiser leaves it
    estimate = dataclasses.replace(
        several_draws,
        training=kept,
        y=several_draws.y[seen],
        draws=Draws("map", vector, np.zeros(1), seed=0),
    )
    x = np.array([[0.5]])
    empty = estimate.summary(Encoded(x, np.array([[3]])), np.empty(0))
    at_centre = dataclasses.replace(
        estimate, draws=Draws("bayes", vector, np.zeros(1), seed=0)
    ).summary(Encoded(x, np.array([[3]])), np.empty(0))
    assert empty.sd[0] > 1.2 * at_centre.sd[0]
