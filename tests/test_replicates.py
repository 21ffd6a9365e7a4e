"""Observations at the same inputs are put together: exactly the same results, fewer rows."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lvgp import LVGPRegressor
from lvgp.infer.draws import Draws
from lvgp.leave_one_out import pointwise
from lvgp.model import Model, features, groups, pack_rows
from lvgp.posterior import Posterior
from lvgp.priors import Priors
from lvgp.space import Encoded

MODEL = Model(1, (4,), (2,))


def repeated(seed=0):
    """Return 6 distinct rows, repeated 1 to 5 times and shuffled, and a response."""
    rng = np.random.default_rng(seed)
    distinct = np.concatenate([rng.random((6, 1)), rng.integers(0, 4, (6, 1))], axis=1)
    rows = rng.permutation(np.repeat(distinct, [1, 2, 5, 1, 3, 2], axis=0))
    return rows[:, :1], rows[:, 1:].astype(int), rng.normal(size=len(rows))


def vector(seed=1):
    v = 0.5 * np.random.default_rng(seed).standard_normal(MODEL.size)
    v[1] = -2.0
    return v


def dense_covariance(v, x, t, model=MODEL):
    """The covariance of single observations, mu in it, and their noise variance."""
    p = model.parameters(jnp.asarray(v), Priors())
    points = np.asarray(features(p, jnp.asarray(x), jnp.asarray(t), jnp.zeros(len(x))))
    squared = ((points[:, None] - points[None]) ** 2).sum(-1)
    signal = float(p.variance) * np.exp(-0.5 * squared) + Priors().mean_sd ** 2
    return signal + float(p.noise) * np.eye(len(x)), float(p.noise)


@pytest.mark.usefixtures("double_precision")
def test_likelihood_is_that_of_single_observations():
    x, t, y = repeated()
    rows = pack_rows(x, t, y)
    assert int(rows.mask.sum()) == 6
    for seed in range(5):
        v = vector(seed)
        expected = stats.multivariate_normal(np.zeros(len(y)), dense_covariance(v, x, t)[0])
        found = MODEL.log_likelihood(jnp.asarray(v), rows, Priors())
        np.testing.assert_allclose(found, expected.logpdf(y), rtol=1e-9)


@pytest.mark.usefixtures("double_precision")
def test_leaving_out_single_observations():
    x, t, y = repeated()
    v = vector()
    posterior = Posterior(
        MODEL, Priors(), Draws("bayes", v[None], np.zeros(1), 0), Encoded(x, t), y, 0.0, 1.0
    )
    found = pointwise(posterior, v[None])
    C, _ = dense_covariance(v, x, t)
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        solved = np.linalg.solve(C[np.ix_(rest, rest)], C[rest, i])
        np.testing.assert_allclose(found.means[0, i], solved @ y[rest], rtol=1e-7)
        np.testing.assert_allclose(found.variances[0, i], C[i, i] - C[rest, i] @ solved, rtol=1e-7)


def test_groups_are_in_order_of_first_appearance():
    x = np.array([[0.5], [0.1], [0.5], [-0.0], [0.0], [0.1]])
    t = np.array([[1], [0], [1], [2], [2], [3]])
    found = groups(x, t)
    assert found.first.tolist() == [0, 1, 3, 5]
    assert found.of.tolist() == [0, 1, 0, 2, 2, 3]
    assert found.counts.tolist() == [2, 1, 2, 1]


def test_without_repeats_rows_keep_their_order():
    x, t = np.random.default_rng(0).random((9, 2)), np.zeros((9, 1), int)
    assert groups(x, t).first.tolist() == list(range(9))
    assert groups(np.zeros((3, 0)), np.zeros((3, 0), int)).counts.tolist() == [1, 1, 1]


def test_a_fit_to_replicates_reports_on_every_observation():
    rng = np.random.default_rng(2)
    X = pd.DataFrame({"site": list("abcde") * 8})
    y = X["site"].map(dict(zip("abcde", [0.0, 0.1, 1.0, 1.2, 3.0], strict=True)))
    y = y + 0.1 * rng.standard_normal(40)
    model = LVGPRegressor(random_state=0, draws=400, progress=False).fit(X, y)
    assert len(model.loo()) == 40
    assert model.diagnostics_.table.index.str.startswith("prediction[").sum() == 5
    means = y.groupby(X["site"]).mean()
    found = pd.Series(model.predict(pd.DataFrame({"site": list("abcde")})), index=list("abcde"))
    # eight observations of sd 0.1 leave 0.035, little of it shrunk
    np.testing.assert_allclose(found, means, atol=0.05)
    assert 0.05 < model.parameters_["noise_sd"] < 0.2
    assert np.asarray(model.to_arviz().log_likelihood["y"]).shape[-1] == 40


def test_repeats_do_not_keep_factors_from_being_cached():
    """1000 draws at 40 combinations take 13 MB, however often these were measured."""
    rng = np.random.default_rng(0)
    t = np.repeat(np.stack(np.meshgrid(np.arange(8), np.arange(5)), -1).reshape(-1, 2), 250, axis=0)
    model = Model(0, (8, 5), (2, 2))
    draws = Draws("bayes", rng.normal(size=(1000, model.size)), np.zeros(1000), 0)
    training = Encoded(np.empty((len(t), 0)), t)
    posterior = Posterior(model, Priors(), draws, training, rng.normal(size=len(t)), 0.0, 1.0)
    assert posterior._is_cached
