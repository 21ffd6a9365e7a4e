"""Have the chains converged? Judged on identified quantities only, by ArviZ's R-hat and ESS.

Raw latent coordinates are free to rotate and say nothing; the correlations between levels do.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from scipy.special import ndtri

from lvgp import compute
from lvgp.infer.draws import Convergence
from lvgp.kernels import KERNELS, squared_distances
from lvgp.model import Model, Rows
from lvgp.priors import Priors

MOST_R_HAT = 1.01
LEAST_ESS = 400.0
LEAST_TAIL_ESS = 100.0
_MOST_ROWS = 1000
_PIECE = 64


@dataclass(frozen=True)
class Layout:
    """Where each kind of identified quantity stands among all of them."""

    hyperparameters: slice
    correlations: tuple[slice, ...]
    """One for each qualitative column: pairs of levels a < b, row by row."""
    log_density: int
    fitted: slice
    """The predictive means at training rows."""
    for_maps: np.ndarray
    """Which of them the latent maps rest on; predictions rest on the others."""

    @property
    def size(self) -> int:
        """How many quantities there are."""
        return self.fitted.stop


def watched_rows(distinct: int) -> np.ndarray:
    """Return which of the distinct rows' predictions are watched: all, or 1000 evenly spaced."""
    return np.linspace(0, distinct - 1, min(distinct, _MOST_ROWS)).round().astype(int)


def layout(model: Model, rows: int) -> Layout:
    """Return the order in which `identified` gives its quantities when it watches `rows` rows."""
    start, blocks = model.raw_start, []
    for levels in model.n_levels:
        blocks.append(slice(start, start + levels * (levels - 1) // 2))
        start = blocks[-1].stop
    for_maps = np.zeros(start + 1 + rows, dtype=bool)
    for_maps[2 + model.n_quantitative : start] = True
    return Layout(
        slice(0, model.raw_start),
        tuple(blocks),
        start,
        slice(start + 1, start + 1 + rows),
        for_maps,
    )


def identified(
    model: Model, vectors: np.ndarray, log_densities: np.ndarray, rows: Rows, priors: Priors
) -> np.ndarray:
    """Return (draws, quantities) for draws (draws, parameters), in the order of `layout`."""
    watched = watched_rows(int(np.asarray(rows.mask).sum()))
    found = []
    # pieces of one size share one compiled program, and little is held at a time
    for start in range(0, len(vectors), _PIECE):
        piece = vectors[start : start + _PIECE]
        pairs, fitted = (
            np.asarray(part)[: len(piece)]
            for part in _identified(model, compute.padded_batch(piece), rows, priors)
        )
        found.append(np.concatenate([pairs, fitted[:, watched]], axis=1))
    correlations, means = np.split(np.concatenate(found), [pairs.shape[1]], axis=1)
    return np.concatenate(
        [vectors[:, : model.raw_start], correlations, log_densities[:, None], means], axis=1
    )


@partial(jax.jit, static_argnums=0)
def _identified(model: Model, vectors: Array, rows: Rows, priors: Priors) -> tuple[Array, Array]:
    def one(vector: Array) -> tuple[Array, Array]:
        parameters = model.parameters(vector, priors)
        pairs = [jnp.zeros(0)]
        for latents in parameters.latents:
            correlation = KERNELS[model.kernel](squared_distances(latents, latents))[0]
            pairs.append(correlation[jnp.triu_indices(len(latents), 1)])
        return jnp.concatenate(pairs), model.fitted_mean(vector, rows, priors)

    return jax.lax.map(one, vectors)


def reached(found: Convergence, of_interest: np.ndarray) -> bool:
    """Whether all quantities of interest are estimated as well as asked for."""
    return bool(
        (found.r_hat[of_interest] < MOST_R_HAT).all()
        and (found.ess_bulk[of_interest] >= LEAST_ESS).all()
        and (found.ess_tail[of_interest] >= LEAST_TAIL_ESS).all()
    )


class Glance(NamedTuple):
    """A quick estimate of effective sample size and R-hat of every quantity."""

    ess: np.ndarray
    r_hat: np.ndarray


def glance(values: np.ndarray) -> Glance:
    """Return what `measure` returns, nearly, of all quantities at once: eight times as fast.

    Rank-normalised and split as ArviZ does it; NumPyro's estimators. Chains are steered by this
    and judged by `measure`.
    """
    halves = _halved(values)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    bulk, tails = _normal_scores(halves), _normal_scores(folded)
    with np.errstate(invalid="ignore", divide="ignore"):
        ess = effective_sample_size(bulk)
        r_hat = np.maximum(gelman_rubin(bulk), gelman_rubin(tails))
    still = np.ptp(values, axis=(0, 1)) == 0.0
    return Glance(np.where(still, float(values[..., 0].size), ess), np.where(still, 1.0, r_hat))


def _halved(values: np.ndarray) -> np.ndarray:
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _normal_scores(values: np.ndarray) -> np.ndarray:
    """Replace each value by the normal quantile of its rank among all chains' draws."""
    flat = np.ascontiguousarray(values.reshape(-1, values.shape[-1]).T)
    count = flat.shape[1]
    quantiles = ndtri((np.arange(1, count + 1) - 0.375) / (count + 0.25))
    scores = np.empty(flat.shape)
    np.put_along_axis(scores, flat.argsort(axis=1), quantiles[None], axis=1)
    return scores.T.reshape(values.shape)


def measure(values: np.ndarray) -> Convergence:
    """Return rank-normalised split R-hat, bulk and tail ESS of values (chains, draws, quantities).

    A single chain is compared with itself, half with half. A quantity that never moves (a
    correlation that rounds to 1) is known exactly: it counts as converged.
    """
    if len(values) == 1:
        values = _halved(values)
    chains, draws, quantities = values.shape
    # not a number has not stood still either
    moving = np.ptp(values, axis=(0, 1)) != 0.0
    exact = float(chains * draws)
    found = Convergence(*(np.full(quantities, still) for still in (exact, exact, 1.0)))
    if moving.any():
        arviz = import_arviz()
        data = arviz.convert_to_dataset({"value": values[..., moving]})
        found.ess_bulk[moving] = arviz.ess(data, method="bulk")["value"].values
        found.ess_tail[moving] = arviz.ess(data, method="tail")["value"].values
        found.r_hat[moving] = arviz.rhat(data)["value"].values
    return found


def import_arviz() -> Any:
    """Return ArviZ, loaded late because that takes a second, without its news of the day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz
