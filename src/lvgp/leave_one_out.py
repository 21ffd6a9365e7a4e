"""Each training row predicted from all the others, without fitting again.

Given a draw of the parameters, the prediction of row i from the other rows is closed form: with
C the covariance of y (mu integrated out), it is normal with mean y_i - [C^-1 y]_i / [C^-1]_ii and
variance 1 / [C^-1]_ii. The draws follow the posterior given all rows; importance weights
1 / p(y_i | other rows, draw), smoothed by ArviZ (PSIS), turn them into draws without row i. (VFE
samples a bound, and its weights are those of the row's share of that bound.)
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from scipy.special import ndtr

from lvgp import compute
from lvgp.infer.convergence import import_arviz
from lvgp.mixture import Components, mixture_moments, mixture_quantile
from lvgp.model import Groups, Model, Rows, groups
from lvgp.posterior import Posterior
from lvgp.priors import Priors

_MOST_NUMBERS = 5e6


class Pointwise(NamedTuple):
    """For each draw and training row, the prediction from the other rows; y standardised."""

    means: Any
    covered: Any
    """Variance of the response as the likelihood has it, noise included."""
    unexplained: Any
    """Variance that VFE's likelihood lacks and its predictions have; (draws, 1) zeros elsewhere."""
    noise: Any
    """Noise variance, one for each draw."""
    process_mean: Any
    """Posterior mean of mu, one for each draw."""
    process_mean_variance: Any

    @property
    def variances(self) -> np.ndarray:
        """Of a new response: noise included."""
        return np.asarray(self.covered + self.unexplained)

    def log_densities(self, y: np.ndarray) -> np.ndarray:
        """Return log p(y_i | other rows, draw)."""
        return _log_normal(y - self.means, self.variances)

    def log_shares(self, y: np.ndarray) -> np.ndarray:
        """Return what row i adds to the log likelihood that was sampled.

        The same, except for VFE: the density without what the points leave unexplained, and this
        row's part of the penalty, -unexplained / (2 noise).
        """
        penalty = 0.5 * self.unexplained / self.noise[:, None]
        return _log_normal(y - self.means, self.covered) - penalty


def _log_normal(residuals: np.ndarray, variances: np.ndarray) -> np.ndarray:
    return -0.5 * (np.log(2.0 * np.pi * variances) + residuals**2 / variances)


def pointwise(posterior: Posterior, vectors: np.ndarray) -> Pointwise:
    """Return the leave-one-out predictions given each of the parameter vectors."""
    with compute.scope(), compute.one_blas_thread():
        found = _pointwise(
            posterior.model, compute.padded_batch(vectors), posterior.rows, posterior.priors
        )
        kept = Pointwise(*(np.asarray(part)[: len(vectors)] for part in found))
    grouped = groups(posterior.training.x, posterior.training.t)
    real = len(grouped.first)
    kept = kept._replace(
        means=kept.means[:, :real],
        covered=kept.covered[:, :real],
        unexplained=kept.unexplained[:, :real],
    )
    return kept if (grouped.counts == 1).all() else _one_observation(kept, grouped, posterior.y)


def _one_observation(of_groups: Pointwise, found: Groups, y: np.ndarray) -> Pointwise:
    """Predict single observations from predictions of the means of all that share their inputs.

    Those others tell of f at these inputs too: what the rest of the table says of f, N(m, v), is
    combined with their mean, whose noise variance is noise / (n - 1).
    """
    count, noise = found.counts[found.of], of_groups.noise[:, None]
    means, covered = of_groups.means[:, found.of], of_groups.covered[:, found.of]
    unexplained = of_groups.unexplained
    if unexplained.shape[1] > 1:
        unexplained = unexplained[:, found.of]
    repeated = count > 1
    others = (np.bincount(found.of, y)[found.of] - y)[repeated]
    alone = np.maximum(covered[:, repeated] - noise / count[repeated], 1e-300)
    precision = 1.0 / alone + (count[repeated] - 1) / noise
    means[:, repeated] = (means[:, repeated] / alone + others / noise) / precision
    covered[:, repeated] = 1.0 / precision + noise
    return of_groups._replace(means=means, covered=covered, unexplained=unexplained)


@partial(jax.jit, static_argnums=0)
def _pointwise(model: Model, vectors: jax.Array, rows: Rows, priors: Priors) -> Pointwise:
    def one(vector: jax.Array) -> Pointwise:
        conditioned = model.condition(vector, rows, priors)
        noise = model.parameters(vector, priors).noise + rows.jitter
        return Pointwise(
            *model.left_out(vector, rows, priors),
            noise,
            conditioned.mean,
            conditioned.mean_variance,
        )

    return jax.lax.map(one, vectors)


class LeftOut(NamedTuple):
    """The mixture that predicts each training row from the others, on the user's scale."""

    components: Components
    weights: np.ndarray
    """(draws, rows), summing to 1 over draws."""
    pareto_k: np.ndarray
    """Above 0.7 the weights cannot be trusted; NaN for a point estimate, which has none."""

    def table(self, tail: float) -> pd.DataFrame:
        """Return mean, sd, interval without `tail` at either end, and Pareto k of every row."""
        mean, sd = mixture_moments(self.components, self.weights)
        lower, upper = (
            mixture_quantile(self.components, probability, self.weights)
            for probability in (tail, 1.0 - tail)
        )
        columns = {"mean": mean, "sd": sd, "lower": lower, "upper": upper}
        return pd.DataFrame(columns | {"pareto_k": self.pareto_k})

    def reached(self, y: np.ndarray) -> np.ndarray:
        """Return P(y_i below its observed value) given the other rows: uniform if calibrated."""
        sds = np.maximum(self.components.sds, 1e-300)
        return np.asarray((self.weights * ndtr((y - self.components.means) / sds)).sum(axis=0))


def leave_one_out(posterior: Posterior, include_noise: bool) -> LeftOut:
    """Return the leave-one-out mixture of every training row."""
    # fewer draws where there are many rows: all of both are held at once
    most = int(np.clip(_MOST_NUMBERS / len(posterior.y), 100, len(posterior.kept)))
    found = pointwise(posterior, posterior.draws.vectors[posterior.draws.thinned(most)])
    variances = found.variances if include_noise else found.variances - found.noise[:, None]
    components = Components(
        posterior.y_mean + posterior.y_scale * found.means,
        posterior.y_scale * np.sqrt(np.maximum(variances, 0.0)),
    )
    if len(found.means) == 1:
        return LeftOut(components, np.ones((1, 1)), np.full(len(posterior.y), np.nan))
    log_ratios = -found.log_shares(posterior.y)
    log_weights, pareto_k = import_arviz().psislw(log_ratios.T)
    return LeftOut(components, np.exp(np.asarray(log_weights)).T, np.asarray(pareto_k))
