"""Mean-field variational inference: a quick approximation of the posterior around its mode.

NumPyro's SVI fits independent normals, one for each unconstrained parameter, by maximising the
evidence lower bound. It starts from the best mode of a multi-start search, since from a poor mode
it does not find its way out.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from numpyro.distributions import ImproperUniform, constraints
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.initialization import init_to_value
from numpyro.optim import Adam

from lvgp import compute
from lvgp.errors import NumericalError
from lvgp.infer.draws import Draws, Variational
from lvgp.model import Model, Rows
from lvgp.priors import Priors
from lvgp.progress import progress_bar

_DRAWS = 1000
_STRETCH = 100
_MOST_STRETCHES = 80
_LOOK_BACK = 8
_PARTICLES = 4
_LEARNING_RATE = 0.02


def approximate(
    model: Model, rows: Rows, priors: Priors, mode: Draws, progress: bool = False
) -> Draws:
    """Return draws from the mean-field approximation that starts at the mode found."""
    begun = time.perf_counter()
    rows = rows._replace(jitter=jnp.asarray(mode.jitter, dtype=rows.y.dtype))
    seed = int(np.random.SeedSequence([mode.seed, 3]).generate_state(1)[0])
    fit_key, draw_key = jax.random.split(jax.random.key(seed))
    start = mode.vectors[0]
    state = _start(model, fit_key, start, rows, priors)
    elbo: list[float] = []
    settled = False
    with (
        compute.one_blas_thread(),
        progress_bar("fitting the approximation", _MOST_STRETCHES, progress) as advance,
    ):
        while not settled and len(elbo) < _MOST_STRETCHES:
            state, losses = _stretch(model, state, start, rows, priors)
            elbo.append(-float(losses.mean()))
            settled = has_settled(np.array(elbo))
            advance()
        drawn = _draw(model, state, draw_key, start, rows, priors)
    vectors, log_densities, log_approximation = (np.asarray(part) for part in drawn)
    usable = np.isfinite(log_densities)
    if not usable.any():
        raise NumericalError(
            "the variational approximation went astray: the log density is not finite at any of "
            'its draws. Use method="bayes", or raise noise_floor in Priors'
        )
    return Draws(
        method="vi",
        vectors=vectors[usable],
        log_densities=log_densities[usable],
        seed=mode.seed,
        jitter=mode.jitter,
        inducing=mode.inducing,
        optimization=mode.optimization,
        variational=Variational(
            elbo=np.array(elbo),
            settled=settled,
            log_weights=(log_densities - log_approximation)[usable],
            seconds=time.perf_counter() - begun,
        ),
    )


def has_settled(elbo: np.ndarray) -> bool:
    """Whether the bound rose in the last stretches by no more than it scatters."""
    if len(elbo) < 2 * _LOOK_BACK:
        return False
    before, after = elbo[-2 * _LOOK_BACK : -_LOOK_BACK], elbo[-_LOOK_BACK:]
    scatter = np.sqrt((before.var(ddof=1) + after.var(ddof=1)) / _LOOK_BACK)
    return bool(np.isfinite(elbo[-1]) and after.mean() - before.mean() <= 2.0 * scatter)


def _svi(model: Model, start: Array, rows: Rows, priors: Priors) -> SVI:
    def density() -> None:
        improper = ImproperUniform(constraints.real_vector, (), (model.size,))
        vector = numpyro.sample("vector", improper)
        numpyro.factor("density", model.log_density(vector, rows, priors))

    at_mode = init_to_value(values={"vector": start})
    guide = AutoNormal(density, init_loc_fn=at_mode, init_scale=0.1)
    # particles one after the other: batched factorisations inside a loop can deadlock in XLA
    loss = Trace_ELBO(num_particles=_PARTICLES, vectorize_particles=False)
    return SVI(density, guide, Adam(_LEARNING_RATE), loss)


@partial(jax.jit, static_argnums=0)
def _start(model: Model, key: Array, start: Array, rows: Rows, priors: Priors) -> Any:
    return _svi(model, start, rows, priors).init(key)


@partial(jax.jit, static_argnums=0)
def _stretch(
    model: Model, state: Any, start: Array, rows: Rows, priors: Priors
) -> tuple[Any, Array]:
    svi = _svi(model, start, rows, priors)
    svi.init(state.rng_key)
    return jax.lax.scan(lambda state, _: svi.stable_update(state), state, length=_STRETCH)


@partial(jax.jit, static_argnums=0)
def _draw(
    model: Model, state: Any, key: Array, start: Array, rows: Rows, priors: Priors
) -> tuple[Array, Array, Array]:
    """Return draws with their log densities under the posterior and under the approximation."""
    svi = _svi(model, start, rows, priors)
    svi.init(key)
    fitted = svi.get_params(state)
    location, scale = fitted["vector_auto_loc"], fitted["vector_auto_scale"]
    normals = jax.random.normal(key, (_DRAWS, model.size))
    vectors = location + scale * normals
    approximation = jax.scipy.stats.norm.logpdf(vectors, location, scale).sum(axis=1)
    densities = jax.lax.map(lambda vector: model.log_density(vector, rows, priors), vectors)
    return vectors, densities, approximation
