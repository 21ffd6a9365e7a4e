"""The paper's way of sampling: a plain NumPyro program with automatic differentiation, one chain.

NUTS with 1500 + 1500 transitions, tree depth 7. The density is that of `lvgp.model`, written once
more as one writes it in NumPyro, with mu sampled.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.hmc import hmc
from numpyro.infer.util import ModelInfo, initialize_model
from tables import Case

from lvgp.model import Model
from lvgp.priors import Priors

PRIORS = Priors()
WARMUP, DRAWS, DEPTH = 1500, 1500, 7


def plain_program(model, x, t, y):
    """The model as one writes it in NumPyro."""
    mu = numpyro.sample("mu", dist.Normal(0.0, PRIORS.mean_sd))
    log_variance = numpyro.sample("log_variance", dist.Normal(0.0, 1.0))
    noise = numpyro.sample("noise", dist.HalfCauchy(PRIORS.noise_scale))
    features = []
    if model.n_quantitative:
        anywhere = dist.ImproperUniform(dist.constraints.real_vector, (), (model.n_quantitative,))
        log_lengthscales = numpyro.sample("log_lengthscales", anywhere)
        outside = jnp.maximum(jnp.abs(log_lengthscales) - math.log(10.0), 0.0)
        numpyro.factor("tails", -0.5 * jnp.sum((outside / PRIORS.lengthscale_tail_sd) ** 2))
        features.append(x / jnp.exp(log_lengthscales))
    for j, (levels, dim) in enumerate(zip(model.n_levels, model.latent_dims, strict=True)):
        gamma = numpyro.sample(f"gamma_{j}", dist.Gamma(PRIORS.alpha, PRIORS.alpha - 1.0))
        raw = numpyro.sample(f"raw_{j}", dist.Normal(0.0, 1.0).expand([levels, dim]).to_event(2))
        features.append((raw / jnp.sqrt(levels * gamma))[t[:, j]])
    points = jnp.concatenate(features, axis=1)
    squared = jnp.sum((points[:, None] - points[None]) ** 2, axis=-1)
    covariance = jnp.exp(log_variance) * jnp.exp(-0.5 * squared)
    covariance += (PRIORS.noise_floor + noise) * jnp.eye(len(y))
    numpyro.sample("y", dist.MultivariateNormal(mu, covariance_matrix=covariance), obs=y)


def begin(case: Case, seed: int) -> ModelInfo:
    """Return where NumPyro starts the plain program, with its density."""
    encoded = case.encoded
    arguments = (case.model, jnp.asarray(encoded.x), jnp.asarray(encoded.t), case.standardised)
    return initialize_model(jax.random.key(1000 * seed), plain_program, model_args=arguments)


def compiled(info: ModelInfo):
    """Return the compiled chain: (start, key) -> positions and steps, warm-up included."""
    initial, transition = hmc(info.potential_fn, algo="NUTS")

    def run(start, key):
        state = initial(start, WARMUP, max_tree_depth=DEPTH, rng_key=key)

        def one(state, _):
            state = transition(state)
            return state, (state.z, state.num_steps)

        return jax.lax.scan(one, state, length=WARMUP + DRAWS)[1]

    return jax.jit(run).lower(info.param_info.z, chain_key(0)).compile()


def chain_key(seed: int) -> jax.Array:
    """Return the key of the chain with this seed."""
    return jax.random.key(1000 * seed + 1)


def draws(model: Model, info: ModelInfo, positions: dict[str, jax.Array]) -> np.ndarray:
    """Return the draws after warm-up in the order of our parameter vector."""
    kept = jax.vmap(info.postprocess_fn)({name: part[WARMUP:] for name, part in positions.items()})
    parts = [kept["log_variance"][:, None], np.log(kept["noise"])[:, None]]
    if model.n_quantitative:
        parts.append(kept["log_lengthscales"])
    columns = range(len(model.n_levels))
    parts += [np.log(kept[f"gamma_{j}"])[:, None] for j in columns]
    parts += [np.reshape(kept[f"raw_{j}"], (DRAWS, -1)) for j in columns]
    return np.concatenate([np.asarray(part) for part in parts], axis=1)
