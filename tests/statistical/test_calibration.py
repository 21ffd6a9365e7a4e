"""Simulation-based calibration: parameters drawn from the prior, data from them, and back.

If sampler, density and priors agree, the rank of the true value among the posterior draws is
uniform for every quantity (Talts et al., 2018).
"""

from __future__ import annotations

import independent
import numpy as np
import pytest
from scipy import stats

from lvgp import compute
from lvgp.infer.convergence import identified
from lvgp.infer.sample import Budget, sample
from lvgp.model import Model, pack_rows
from lvgp.priors import Priors

MODEL = Model(1, (3,), (2,))
PRIORS = Priors()
ROWS, REPLICATES, KEPT = 12, 200, 99


def prior_vector(rng):
    """One draw of the unconstrained parameters from their prior."""
    vector = rng.standard_normal(MODEL.size)
    vector[1] = np.log(stats.halfcauchy(scale=PRIORS.noise_scale).rvs(random_state=rng))
    low, high, tail = np.log(0.1), np.log(10.0), PRIORS.lengthscale_tail_sd
    if rng.random() < (high - low) / (high - low + np.sqrt(2 * np.pi) * tail):
        vector[2] = rng.uniform(low, high)
    else:
        beyond = abs(tail * rng.standard_normal())
        vector[2] = high + beyond if rng.random() < 0.5 else low - beyond
    vector[3] = np.log(rng.gamma(PRIORS.alpha, 1.0 / (PRIORS.alpha - 1.0)))
    return vector


def simulated(vector, rng):
    """Rows and a response drawn from the model at `vector`, mu ~ N(0, 1) included."""
    x = rng.random((ROWS, 1))
    t = rng.permutation(np.resize(np.arange(3), ROWS))[:, None]
    parameters = independent.unpack(MODEL, vector)
    covariance = independent.kernel("rbf", (x, t), (x, t), parameters) + 1.0
    covariance += parameters["noise"] * np.eye(ROWS)
    return x, t, rng.multivariate_normal(np.zeros(ROWS), covariance)


def ranks(sampler, seed):
    """Ranks of the true identified quantities among 99 posterior draws."""
    rng = np.random.default_rng([seed, 7])
    truth = prior_vector(rng)
    x, t, y = simulated(truth, rng)
    budget = Budget(sampler, 4, 200, 200, 0.85, np.inf, True)
    with compute.scope():
        rows = pack_rows(x, t, y)
        draws = sample(MODEL, rows, PRIORS, budget, seed)
        kept = draws.thinned(100)[:KEPT]
        density = independent.log_density(MODEL, truth, x, t, y)
        values = identified(
            MODEL,
            np.vstack([truth, draws.vectors[kept]]),
            np.concatenate([[density], draws.log_densities[kept]]),
            rows,
            PRIORS,
        )
    return (values[1:] < values[0]).sum(axis=0)


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["microcanonical", "nuts"])
def test_ranks_of_the_truth_are_uniform(sampler):
    """Kolmogorov-Smirnov on 8 quantities and the fit at 12 rows; Bonferroni: false alarms 1e-3."""
    found = np.array([ranks(sampler, seed) for seed in range(REPLICATES)])
    rng = np.random.default_rng(0)
    uniform = (found + rng.random(found.shape)) / (KEPT + 1)
    p = np.array([stats.kstest(column, "uniform").pvalue for column in uniform.T])
    assert p.min() > 1e-3 / len(p), p
