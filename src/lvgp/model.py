"""Parameters -> latents -> THE log density. Nothing else defines a prior or a likelihood.

The parameters are one unconstrained vector: log sigma^2, log of the noise variance above its
floor, log omega_i, log gamma_j, and the raw latents (standard normal a priori; the latents are
z = raw / sqrt(L gamma)). mu never appears: it is integrated out exactly (MAP, Bayes) or maximised
over (MLE). Fixing a frame of reference for the latents changes no distance, hence no density, and
is left to interpretation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from lvgp import exact
from lvgp.priors import Priors

jax.tree_util.register_dataclass(Priors)

_OUT_OF_REACH = 1e4
_LOG_2PI = math.log(2.0 * math.pi)


class Rows(NamedTuple):
    """Training rows as arrays, padded: scaled inputs, level codes, response, mask of real rows."""

    x: Array
    t: Array
    y: Array
    mask: Array
    remoteness: Array
    """Zero for real rows; puts each padding row out of reach of all others."""
    jitter: Array
    """Added to the noise variance; zero unless the covariance needed stabilising."""


class Parameters(NamedTuple):
    """One point of the parameter space in the model's own scales."""

    variance: Array
    noise: Array
    lengthscales: Array
    precisions: Array
    latents: tuple[Array, ...]
    """One (L_j, d_j) array for each qualitative column."""


@dataclass(frozen=True)
class Model:
    """What the density's form depends on: column counts, latent dimensions, kernel, treatment.

    `plug_in_likelihood=True` gives the maximum-likelihood objective: flat priors, gamma = 1 and
    mu at its maximum, instead of the posterior density with mu integrated out.
    """

    n_quantitative: int
    n_levels: tuple[int, ...]
    latent_dims: tuple[int, ...]
    kernel: str = "rbf"
    plug_in_likelihood: bool = False

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the entries of the parameter vector, in order."""
        names = ["log_variance", "log_noise"]
        names += [f"log_lengthscale[{i}]" for i in range(self.n_quantitative)]
        names += [f"log_precision[{j}]" for j in range(len(self.n_levels))]
        for j, (levels, dim) in enumerate(zip(self.n_levels, self.latent_dims, strict=True)):
            names += [f"raw_latent[{j},{a},{r}]" for a in range(levels) for r in range(dim)]
        return tuple(names)

    @property
    def size(self) -> int:
        """Length of the parameter vector."""
        return len(self.names)

    @cached_property
    def raw_start(self) -> int:
        """Where the raw latents start in the parameter vector."""
        return 2 + self.n_quantitative + len(self.n_levels)

    def split(self, vector: Array) -> tuple[Array, Array, Array, Array, list[Array]]:
        """Return log variance, log noise excess, log lengthscales, log precisions, raw latents."""
        precisions = vector[2 + self.n_quantitative : self.raw_start]
        raw, start = [], self.raw_start
        for levels, dim in zip(self.n_levels, self.latent_dims, strict=True):
            raw.append(vector[start : start + levels * dim].reshape(levels, dim))
            start += levels * dim
        return vector[0], vector[1], vector[2 : 2 + self.n_quantitative], precisions, raw

    def parameters(self, vector: Array, priors: Priors) -> Parameters:
        """Return the constrained parameters at `vector`."""
        log_variance, log_noise, log_lengthscales, log_precisions, raw = self.split(vector)
        if self.plug_in_likelihood:
            log_precisions = jnp.zeros_like(log_precisions)
        scales = jnp.exp(-0.5 * log_precisions)
        latents = tuple(part * (scales[j] / math.sqrt(len(part))) for j, part in enumerate(raw))
        return Parameters(
            variance=jnp.exp(log_variance),
            noise=priors.noise_floor + jnp.exp(log_noise),
            lengthscales=jnp.exp(log_lengthscales),
            precisions=jnp.exp(log_precisions),
            latents=latents,
        )

    def process(self, parameters: Parameters, rows: Rows, priors: Priors) -> exact.Process:
        """Return the Gaussian process that `parameters` put on `rows`."""
        precision = 0.0 if self.plug_in_likelihood else 1.0 / priors.mean_sd**2
        return exact.Process(
            features=features(parameters, rows.x, rows.t, rows.remoteness),
            variance=parameters.variance,
            noise=parameters.noise + rows.jitter,
            mean_precision=jnp.asarray(precision, dtype=rows.y.dtype),
        )

    def log_likelihood(self, vector: Array, rows: Rows, priors: Priors) -> Array:
        """Return log p(y | parameters), mu integrated out or maximised over."""
        process = self.process(self.parameters(vector, priors), rows, priors)
        return exact.log_marginal_likelihood(
            self.kernel, not self.plug_in_likelihood, process, rows.y, rows.mask
        )

    def log_prior(self, vector: Array, priors: Priors) -> Array:
        """Return the normalised log prior density of the unconstrained vector, Jacobians included.

        For the maximum-likelihood objective: zero, except outside a wide box.
        """
        if self.plug_in_likelihood:
            return self._log_flat_prior(vector)
        log_variance, log_noise, log_lengthscales, log_precisions, _ = self.split(vector)
        total = _log_normal_density(log_variance, priors.log_variance_mean, priors.log_variance_sd)
        total += _log_half_cauchy_density(log_noise, priors.noise_scale)
        total += jnp.sum(_log_smoothed_uniform_density(log_lengthscales, priors))
        total += jnp.sum(_log_gamma_density(log_precisions, priors.alpha))
        return total + jnp.sum(_log_normal_density(vector[self.raw_start :], 0.0, 1.0))

    def _log_flat_prior(self, vector: Array) -> Array:
        """Zero where sigma^2 is within 1e-5..1e5, the noise above its floor within 1e-12..10, each
        omega within 1e-3..1e3 and each latent coordinate within +-10; steep outside.

        The likelihood alone has its supremum at infinity for a column or level without effect.
        """
        log_variance, log_noise, log_lengthscales, _, raw = self.split(vector)
        excess = [
            _outside(log_variance[None], math.log(1e-5), math.log(1e5)),
            _outside(log_noise[None], math.log(1e-12), math.log(10.0)),
            _outside(log_lengthscales, math.log(1e-3), math.log(1e3)),
            *(_outside(part.ravel() / math.sqrt(len(part)), -10.0, 10.0) for part in raw),
        ]
        return -0.5 * jnp.sum((jnp.concatenate(excess) / 0.1) ** 2)

    def log_density(self, vector: Array, rows: Rows, priors: Priors) -> Array:
        """Return the log density that every method of inference reads."""
        return self.log_likelihood(vector, rows, priors) + self.log_prior(vector, priors)

    def condition(self, vector: Array, rows: Rows, priors: Priors) -> exact.Conditioned:
        """Condition the process at `vector` on the training rows."""
        process = self.process(self.parameters(vector, priors), rows, priors)
        return exact.condition(self.kernel, not self.plug_in_likelihood, process, rows.y, rows.mask)


def features(parameters: Parameters, x: Array, t: Array, remoteness: Array) -> Array:
    """Return rows as points of the space in which the kernel measures distance.

    Scaled inputs x_i / omega_i beside the latents of each row's levels (paper, LVGP covariance).
    """
    parts = [x / parameters.lengthscales]
    parts += [latents[t[:, j]] for j, latents in enumerate(parameters.latents)]
    parts.append(remoteness[:, None])
    return jnp.concatenate(parts, axis=1)


def pack_rows(x: np.ndarray, t: np.ndarray, y: np.ndarray, jitter: float = 0.0) -> Rows:
    """Return the training rows padded to the size they are computed with."""
    rows = len(y)
    extra = exact.padded_size(rows) - rows
    return Rows(
        x=jnp.asarray(np.pad(x, ((0, extra), (0, 0))), dtype=jnp.float64),
        t=jnp.asarray(np.pad(t, ((0, extra), (0, 0))), dtype=jnp.int32),
        y=jnp.asarray(np.pad(y, (0, extra)), dtype=jnp.float64),
        mask=jnp.asarray(np.arange(rows + extra) < rows, dtype=jnp.float64),
        remoteness=jnp.asarray(
            _OUT_OF_REACH * np.maximum(np.arange(rows + extra) - rows + 1, 0), dtype=jnp.float64
        ),
        jitter=jnp.asarray(jitter, dtype=jnp.float64),
    )


def _log_normal_density(value: Array, mean: float, sd: float) -> Array:
    return -0.5 * ((value - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * _LOG_2PI


def _log_half_cauchy_density(log_value: Array, scale: float) -> Array:
    """HalfCauchy(scale) at exp(log_value), as a density of log_value."""
    relative = jnp.exp(log_value) / scale
    return math.log(2.0 / math.pi) - jnp.log(scale) - jnp.log1p(relative**2) + log_value


def _log_smoothed_uniform_density(log_value: Array, priors: Priors) -> Array:
    """Uniform on [log low, log high], with Gaussian tails outside."""
    low, high = jnp.log(priors.lengthscale_low), jnp.log(priors.lengthscale_high)
    sd = priors.lengthscale_tail_sd
    return -0.5 * (_outside(log_value, low, high) / sd) ** 2 - jnp.log(
        high - low + jnp.sqrt(2.0 * jnp.pi) * sd
    )


def _outside(value: Array, low: Array | float, high: Array | float) -> Array:
    return jnp.maximum(jnp.maximum(low - value, value - high), 0.0)


def _log_gamma_density(log_value: Array, alpha: float) -> Array:
    """Gamma(alpha, rate alpha - 1) at exp(log_value), as a density of log_value."""
    rate = alpha - 1.0
    normaliser = alpha * jnp.log(rate) - gammaln(alpha)
    return alpha * log_value - rate * jnp.exp(log_value) + normaliser
