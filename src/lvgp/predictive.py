"""Rows to predict at, latents for levels that have none, and the programs that predict there."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lvgp.infer.draws import Draws
from lvgp.model import Conditioned, Model, Parameters, features
from lvgp.space import Encoded

_FEWEST_COMPONENTS = 512


class Query(NamedTuple):
    """Rows to predict at, and the components of the mixture there."""

    x: np.ndarray
    t: np.ndarray
    sources: np.ndarray
    """The draw that each component comes from."""
    fresh: tuple[np.ndarray, ...]
    """For each qualitative column (components, new levels, d): standard normals."""

    def at(self, components: np.ndarray) -> Query:
        """Return the same rows with some of the components."""
        fresh = tuple(normals[components] for normals in self.fresh)
        return self._replace(sources=self.sources[components], fresh=fresh)


def query(model: Model, draws: Draws, kept: int, training: Encoded, encoded: Encoded) -> Query:
    """Give every level without data latents drawn from their prior given gamma.

    That is levels never declared, and with a point estimate also declared ones without rows (in
    draws of the posterior those already follow their prior). The numbers depend on the fit's seed
    and the level's name, so that a row's prediction does not depend on the others.
    """
    t, sources, fresh = encoded.t.copy(), np.arange(kept), []
    names: list[list[Any]] = [list(levels) for levels in encoded.unknown]
    names = names or [[] for _ in model.n_levels]
    if draws.is_plug_in:
        for j, levels in enumerate(model.n_levels):
            for level in np.setdiff1d(t[:, j], training.t[:, j]):
                if level < levels:
                    t[t[:, j] == level, j] = levels + len(names[j])
                    names[j].append(("declared", int(level)))
    if any(names):
        sources = np.repeat(sources, -(-_FEWEST_COMPONENTS // len(sources)))
    for j, dim in enumerate(model.latent_dims):
        normals = [_normals(draws.seed, j, name, (len(sources), dim)) for name in names[j]]
        # a few sizes only, so that few programs are compiled
        spare = (0 if not normals else 1 << (len(normals) - 1).bit_length()) - len(normals)
        normals += [np.zeros((len(sources), dim))] * spare
        empty = np.zeros((len(sources), 0, dim))
        fresh.append(np.stack(normals, axis=1) if normals else empty)
    return Query(encoded.x, t, sources, tuple(fresh))


def _normals(seed: int, column: int, name: Any, shape: tuple[int, int]) -> np.ndarray:
    text = zlib.crc32(repr(name).encode())
    return np.random.default_rng([seed, 4, column, text]).standard_normal(shape)


class Mixture(NamedTuple):
    """Components as the compiled programs take them, one beside the other."""

    parameters: Parameters
    conditioned: Conditioned
    """Of the draws that the components come from."""
    sources: Any
    """The position in `conditioned` that each component comes from."""
    fresh: tuple[Any, ...]

    def each(self, read: Callable[[Parameters, Conditioned, tuple[Any, ...]], Any]) -> Any:
        """Return what `read` makes of each component, one after the other to bound memory."""

        def one(component: tuple[Parameters, jax.Array, tuple[Any, ...]]) -> Any:
            parameters, source, fresh = component
            process = jax.tree.map(lambda part: part[source], self.conditioned)
            return read(parameters, process, fresh)

        return jax.lax.map(one, (self.parameters, self.sources, self.fresh))


@partial(jax.jit, static_argnums=0)
def moments(model: Model, mixture: Mixture, x: jax.Array, t: jax.Array) -> Any:
    """Return mean and variance of f at each row, a row of results for each component."""
    return mixture.each(
        lambda parameters, process, fresh: model.conditional_moments(
            process, _features(parameters, fresh, x, t)
        )
    )


@partial(jax.jit, static_argnums=0)
def average_moments(model: Model, mixture: Mixture, x: jax.Array, t: jax.Array) -> Any:
    """Return mean and variance of the average of f over each set of rows: x (sets, rows, q)."""

    def averages(parameters: Parameters, process: Conditioned, fresh: tuple[Any, ...]) -> Any:
        def average(rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            new = _features(parameters, fresh, *rows)
            mean, covariance = model.conditional_covariance(process, new)
            return mean.mean(), covariance.mean()

        return jax.lax.map(average, (x, t))

    return mixture.each(averages)


@partial(jax.jit, static_argnums=0)
def joint_moments(
    model: Model,
    parameters: Parameters,
    conditioned: Conditioned,
    fresh: tuple[jax.Array, ...],
    x: jax.Array,
    t: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return mean and covariance of f over all rows, for one component."""
    return model.conditional_covariance(conditioned, _features(parameters, fresh, x, t))


def _features(
    parameters: Parameters, fresh: tuple[jax.Array, ...], x: jax.Array, t: jax.Array
) -> jax.Array:
    """Return the rows' features, levels beyond the known ones at z = fresh / sqrt(L gamma)."""
    latents = tuple(
        jnp.concatenate([known, normals / jnp.sqrt(len(known) * precision)])
        for known, normals, precision in zip(
            parameters.latents, fresh, parameters.precisions, strict=True
        )
    )
    return features(parameters._replace(latents=latents), x, t, jnp.zeros(len(x)))
