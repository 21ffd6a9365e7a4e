"""Have the chains converged? Judged on identified quantities only, by ArviZ's R-hat and ESS.

Raw latent coordinates are free to rotate and say nothing; the correlations between levels do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lvgp import compute
from lvgp.infer.draws import Convergence
from lvgp.kernels import KERNELS, squared_distances
from lvgp.model import Model, Rows
from lvgp.priors import Priors

MOST_R_HAT = 1.01
LEAST_ESS = 400.0
LEAST_TAIL_ESS = 100.0


@dataclass(frozen=True)
class Layout:
    """Where each kind of identified quantity stands among all of them."""

    hyperparameters: slice
    correlations: tuple[slice, ...]
    """One for each qualitative column: pairs of levels a < b, row by row."""
    log_density: int
    fitted: slice
    """The predictive means at the training rows."""
    for_maps: np.ndarray
    """Which of them the latent maps rest on; predictions rest on the others."""

    @property
    def size(self) -> int:
        """How many quantities there are."""
        return self.fitted.stop


def layout(model: Model, rows: int) -> Layout:
    """Return the order in which `identified` gives its quantities for a table of `rows` rows."""
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
    padded = compute.padded_batch(vectors)
    pairs, fitted = (
        np.asarray(part)[: len(vectors)] for part in _identified(model, padded, rows, priors)
    )
    fitted = fitted[:, : int(np.asarray(rows.mask).sum())]
    return np.concatenate(
        [vectors[:, : model.raw_start], pairs, log_densities[:, None], fitted], axis=1
    )


@partial(jax.jit, static_argnums=0)
def _identified(model: Model, vectors: Array, rows: Rows, priors: Priors) -> tuple[Array, Array]:
    def one(vector: Array) -> tuple[Array, Array]:
        parameters = model.parameters(vector, priors)
        pairs = [jnp.zeros(0)]
        for latents in parameters.latents:
            correlation = KERNELS[model.kernel](squared_distances(latents, latents))[0]
            pairs.append(correlation[jnp.triu_indices(len(latents), 1)])
        weights = model.condition(vector, rows, priors).weights
        # f at the training rows is what the noise leaves of y: y - noise C^-1 (y - mu)
        return jnp.concatenate(pairs), rows.y - (parameters.noise + rows.jitter) * weights

    return jax.lax.map(one, vectors)


def reached(found: Convergence, of_interest: np.ndarray) -> bool:
    """Whether all quantities of interest are estimated as well as asked for."""
    return bool(
        (found.r_hat[of_interest] < MOST_R_HAT).all()
        and (found.ess_bulk[of_interest] >= LEAST_ESS).all()
        and (found.ess_tail[of_interest] >= LEAST_TAIL_ESS).all()
    )


def measure(values: np.ndarray) -> Convergence:
    """Return rank-normalised split R-hat, bulk and tail ESS of values (chains, draws, quantities).

    With a single chain R-hat compares its halves, which shows less than several chains do.
    A quantity that never moves (a correlation that rounds to 1) is known exactly: it counts as
    converged.
    """
    return Convergence(
        bulk_ess(values), _through_arviz("tail", values), _through_arviz("r_hat", values)
    )


def bulk_ess(values: np.ndarray) -> np.ndarray:
    """Return the rank-normalised bulk effective sample size of each quantity."""
    return _through_arviz("bulk", values)


def _through_arviz(what: str, values: np.ndarray) -> np.ndarray:
    import arviz

    chains, draws, quantities = values.shape
    still = np.ptp(values.reshape(-1, quantities), axis=0) == 0.0
    result = np.full(quantities, 1.0 if what == "r_hat" else float(chains * draws))
    if still.all():
        return result
    data = arviz.convert_to_dataset({"value": values[..., ~still]})
    found = arviz.rhat(data) if what == "r_hat" else arviz.ess(data, method=what)
    result[~still] = found["value"].values
    return result
