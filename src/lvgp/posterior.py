"""The predictive mixture: for draws theta_b, f(w) ~ (1/B) sum_b N(f_b(w), s_b^2(w)).

Everything is computed draw by draw on standardised y and combined in closed form; quantiles invert
the mixture's distribution function exactly. Rows go through in chunks, so memory is bounded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr, ndtri

from lvgp import compute, exact
from lvgp.errors import (
    NumericalError,
    NumericalWarning,
    warn,
)
from lvgp.infer.draws import Draws
from lvgp.model import Model, Parameters, Rows, features, pack_rows
from lvgp.priors import Priors
from lvgp.space import Encoded

_CHUNK = 1024
_SMALLEST_CHUNK = 64
_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)


class Components(NamedTuple):
    """Mean and sd of every mixture component at a run of rows, each (draws, rows)."""

    means: np.ndarray
    sds: np.ndarray


@dataclass(frozen=True)
class Posterior:
    """Draws of the parameters with the training rows they condition on."""

    model: Model
    priors: Priors
    draws: Draws
    training: Encoded
    y: np.ndarray
    """The response, standardised by `y_mean` and `y_scale`."""
    y_mean: float
    y_scale: float

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed from the rest: pickles hold NumPy arrays only."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @cached_property
    def _state(self) -> tuple[Rows, Parameters, exact.Conditioned]:
        """Training rows, parameters and conditioned processes, stacked over draws.

        Jitter grows until every factor exists, and is reported.
        """
        for extra in _JITTERS:
            rows = pack_rows(*self.training, self.y, self.draws.jitter + extra)
            parameters, conditioned = _condition(
                self.model, jnp.asarray(self.draws.vectors), rows, self.priors
            )
            if np.isfinite(np.asarray(conditioned.weights)).all():
                break
        else:
            raise NumericalError(
                f"the covariance of the training rows is not positive definite, even with "
                f"{extra:g} added to the noise variance. Remove near-duplicate rows, or raise "
                "noise_floor in Priors"
            )
        if extra:
            warn(
                f"the covariance of the training rows needed {extra:g} added to the noise "
                "variance (on the scale of standardised y) before it could be inverted",
                NumericalWarning,
            )
        return rows, parameters, conditioned

    @property
    def parameters(self) -> Parameters:
        """The parameters of all draws, stacked, in the model's own scales."""
        with compute.scope():
            return jax.tree.map(np.asarray, self._state[1])

    @property
    def process_mean(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of mu given each draw, on standardised y."""
        with compute.scope():
            conditioned = self._state[2]
            return np.asarray(conditioned.mean), np.asarray(conditioned.mean_variance)

    def components(
        self, encoded: Encoded, include_noise: bool
    ) -> Iterator[tuple[slice, Components]]:
        """Yield runs of rows with the mixture's components there, on the user's scale."""
        noise = self.parameters.noise + self.draws.jitter if include_noise else np.zeros(1)
        for start in range(0, len(encoded.x), _CHUNK):
            chosen = slice(start, min(start + _CHUNK, len(encoded.x)))
            with compute.scope():
                _, parameters, conditioned = self._state
                x, t = (_pad_chunk(part[chosen]) for part in encoded)
                moments = _moments(self.model, parameters, conditioned, x, t)
                means, variances = (np.asarray(part)[:, : chosen.stop - start] for part in moments)
            sds = np.sqrt(variances + noise[:, None])
            yield chosen, Components(self.y_mean + self.y_scale * means, self.y_scale * sds)

    def mean_and_sd(
        self, encoded: Encoded, include_noise: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd of the mixture at each row (paper, mixture moments)."""
        mean, sd = np.empty(len(encoded.x)), np.empty(len(encoded.x))
        for chosen, (means, sds) in self.components(encoded, include_noise):
            mean[chosen] = means.mean(axis=0)
            sd[chosen] = np.sqrt((sds**2).mean(axis=0) + means.var(axis=0))
        return mean, sd

    def quantiles(
        self, encoded: Encoded, probabilities: np.ndarray, include_noise: bool = False
    ) -> np.ndarray:
        """Return the (rows, probabilities) quantiles of the mixture."""
        values = np.empty((len(encoded.x), len(probabilities)))
        for chosen, components in self.components(encoded, include_noise):
            for column, probability in enumerate(probabilities):
                values[chosen, column] = mixture_quantile(components, probability)
        return values

    def mean_and_covariance(self, encoded: Encoded) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of f over all rows jointly."""
        mean, covariance = np.zeros(len(encoded.x)), np.zeros((len(encoded.x),) * 2)
        count = len(self.draws.vectors)
        for draw in range(count):
            draw_mean, draw_covariance = self._joint(draw, encoded)
            before, mean = mean, mean + (draw_mean - mean) / (draw + 1)
            covariance += draw_covariance + np.outer(draw_mean - before, draw_mean - mean)
        return self.y_mean + self.y_scale * mean, self.y_scale**2 * covariance / count

    def sample(
        self, encoded: Encoded, n_samples: int, seed: int, include_noise: bool = False
    ) -> np.ndarray:
        """Return (rows, n_samples) joint draws of f, or of new responses with noise."""
        rng = np.random.default_rng(seed)
        chosen = rng.integers(len(self.draws.vectors), size=n_samples)
        samples = np.empty((len(encoded.x), n_samples))
        noise = self.parameters.noise + self.draws.jitter
        for draw in np.unique(chosen):
            mean, covariance = self._joint(int(draw), encoded)
            if include_noise:
                covariance = covariance + noise[draw] * np.eye(len(mean))
            columns = np.flatnonzero(chosen == draw)
            normals = rng.standard_normal((len(mean), len(columns)))
            samples[:, columns] = mean[:, None] + _square_root(covariance) @ normals
        return self.y_mean + self.y_scale * samples

    def _joint(self, draw: int, encoded: Encoded) -> tuple[np.ndarray, np.ndarray]:
        with compute.scope():
            _, parameters, conditioned = self._state
            one = jax.tree.map(lambda part: part[draw], (parameters, conditioned))
            rows = len(encoded.x)
            size = exact.padded_size(rows)
            x, t = (np.pad(part, ((0, size - rows), (0, 0))) for part in encoded)
            mean, covariance = _joint_moments(self.model, *one, x, t)
            return np.asarray(mean)[:rows], np.asarray(covariance)[:rows, :rows]

    def with_draws(self, draws: Draws) -> Posterior:
        """Return the same training rows with other draws."""
        return dataclasses.replace(self, draws=draws)


def mixture_quantile(components: Components, probability: float) -> np.ndarray:
    """Return the exact quantile of each column's equal-weight normal mixture.

    Newton steps on the distribution function, kept inside a bracket that always holds the root:
    it lies between the smallest and the largest of the components' own quantiles.
    """
    means, sds = components.means, np.maximum(components.sds, 1e-300)
    own = means + sds * ndtri(probability)
    low, high = own.min(axis=0), own.max(axis=0)
    value = 0.5 * (low + high)
    scale = np.maximum(sds.max(axis=0), np.abs(high - low))
    for _ in range(200):
        z = (value - means) / sds
        excess = ndtr(z).mean(axis=0) - probability
        low, high = np.where(excess < 0, value, low), np.where(excess < 0, high, value)
        density = (np.exp(-0.5 * z * z) / sds).mean(axis=0) / np.sqrt(2.0 * np.pi)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = value - excess / density
        inside = (step > low) & (step < high)
        following = np.where(inside, step, 0.5 * (low + high))
        done = np.abs(following - value) <= 1e-13 * scale
        value = following
        if done.all():
            break
    return value


def _square_root(covariance: np.ndarray) -> np.ndarray:
    """A matrix S with S S' = covariance, which may be singular (rows repeated)."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def _pad_chunk(part: np.ndarray) -> np.ndarray:
    """Pad rows to a power of two so that tables of all lengths share a few compiled programs."""
    size = _SMALLEST_CHUNK
    while size < len(part):
        size *= 2
    return np.pad(part, ((0, size - len(part)), (0, 0)))


@partial(jax.jit, static_argnums=0)
def _condition(
    model: Model, vectors: jax.Array, rows: Rows, priors: Priors
) -> tuple[Parameters, exact.Conditioned]:
    def one(vector: jax.Array) -> tuple[Parameters, exact.Conditioned]:
        return model.parameters(vector, priors), model.condition(vector, rows, priors)

    return jax.lax.map(one, vectors)


@partial(jax.jit, static_argnums=0)
def _moments(
    model: Model, parameters: Parameters, conditioned: exact.Conditioned, x: jax.Array, t: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def one(draw: tuple[Parameters, exact.Conditioned]) -> tuple[jax.Array, jax.Array]:
        return exact.conditional_moments(model.kernel, draw[1], _new_features(draw[0], x, t))

    return jax.lax.map(one, (parameters, conditioned))


@partial(jax.jit, static_argnums=0)
def _joint_moments(
    model: Model, parameters: Parameters, conditioned: exact.Conditioned, x: jax.Array, t: jax.Array
) -> tuple[jax.Array, jax.Array]:
    new = _new_features(parameters, x, t)
    return exact.conditional_covariance(model.kernel, conditioned, new)


def _new_features(parameters: Parameters, x: jax.Array, t: jax.Array) -> jax.Array:
    return features(parameters, x, t, jnp.zeros(len(x)))
