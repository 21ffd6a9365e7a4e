"""Parameters -> latents -> THE log density. Nothing else defines a prior or a likelihood.

The parameters are one unconstrained vector: log sigma^2, log of the noise variance above its
floor, log omega_i, log gamma_j, and the raw latents (standard normal a priori; the latents are
z = raw / sqrt(L gamma)). mu never appears: it is integrated out exactly (MAP, Bayes) or maximised
over (MLE). Fixing a frame of reference for the latents changes no distance, hence no density, and
is left to interpretation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

from lvgp import exact, sparse
from lvgp.priors import Priors

jax.tree_util.register_dataclass(Priors)

_OUT_OF_REACH = 1e4
_LOG_2PI = math.log(2.0 * math.pi)

Conditioned = exact.Conditioned | sparse.Conditioned


class Rows(NamedTuple):
    """Distinct training rows, padded: inputs, level codes, mean response, mask of real rows.

    Observations at the same inputs are one row: the likelihood depends on their mean, number and
    scatter only.
    """

    x: Array
    t: Array
    y: Array
    mask: Array
    remoteness: Array
    """Zero for real rows; puts each padding row out of reach of all others."""
    jitter: Array
    """Added to the noise variance; zero unless the covariance needed stabilising."""
    counts: Array
    """How many observations each row is the mean of."""
    scatter: Array
    """Sum of squares of the observations around the means of their rows."""
    inducing: sparse.Inducing | None
    """Of a sparse approximation."""


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
    approximation: str | None = None
    """None, or one of `sparse.RULES`."""

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

    def process(
        self, parameters: Parameters, rows: Rows, priors: Priors
    ) -> exact.Process | sparse.Process:
        """Return the Gaussian process that `parameters` put on `rows`."""
        precision = 0.0 if self.plug_in_likelihood else 1.0 / priors.mean_sd**2
        common = {
            "features": features(parameters, rows.x, rows.t, rows.remoteness),
            "variance": parameters.variance,
            "noise": (parameters.noise + rows.jitter) / rows.counts,
            "mean_precision": jnp.asarray(precision, dtype=rows.y.dtype),
        }
        if rows.inducing is None:
            return exact.Process(**common)
        return sparse.Process(**common, inducing=inducing_features(parameters, rows.inducing))

    def log_likelihood(self, vector: Array, rows: Rows, priors: Priors) -> Array:
        """Return log p(y | parameters), mu integrated out or maximised over.

        Of n observations at the same inputs, the mean has noise variance noise / n, and the
        scatter S around it adds log n terms: -[(n - 1) log(2 pi noise) + log n + S / noise] / 2.
        """
        parameters = self.parameters(vector, priors)
        process = self.process(parameters, rows, priors)
        noise = parameters.noise + rows.jitter
        repeats = jnp.sum(rows.mask * (rows.counts - 1.0))
        within = repeats * (jnp.log(noise) + _LOG_2PI) + jnp.sum(jnp.log(rows.counts))
        within += rows.scatter / noise
        return (
            self._read(exact.log_marginal_likelihood, sparse.log_marginal_likelihood)(
                process, rows.y, rows.mask
            )
            - 0.5 * within
        )

    def _read(
        self, exactly: Callable[..., Any], sparsely: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return the function of the model's likelihood, its fixed arguments filled in."""
        if self.approximation is None:
            return partial(exactly, self.kernel, not self.plug_in_likelihood)
        return partial(sparsely, self.approximation, self.kernel, not self.plug_in_likelihood)

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

    def condition(self, vector: Array, rows: Rows, priors: Priors) -> Conditioned:
        """Condition the process at `vector` on the training rows."""
        process = self.process(self.parameters(vector, priors), rows, priors)
        return self._read(exact.condition, sparse.condition)(process, rows.y, rows.mask)

    def fitted_mean(self, vector: Array, rows: Rows, priors: Priors) -> Array:
        """Return the predictive mean at the training rows."""
        process = self.process(self.parameters(vector, priors), rows, priors)
        conditioned = self._read(exact.condition, sparse.condition)(process, rows.y, rows.mask)
        if isinstance(process, sparse.Process):
            return sparse.fitted_mean(self.kernel, process, conditioned)
        return exact.fitted_mean(process, conditioned, rows.y)

    def left_out(self, vector: Array, rows: Rows, priors: Priors) -> tuple[Array, Array, Array]:
        """Return mean and variance of each row's response given the other rows.

        Third comes the variance that predictions have and VFE's likelihood lacks, else [0].
        """
        process = self.process(self.parameters(vector, priors), rows, priors)
        return self._read(exact.left_out, sparse.left_out)(process, rows.y, rows.mask)

    def conditional_moments(self, conditioned: Conditioned, new: Array) -> tuple[Array, Array]:
        """Return mean and variance of f at rows with features `new`."""
        if isinstance(conditioned, sparse.Conditioned):
            return sparse.conditional_moments(self.kernel, conditioned, new)
        return exact.conditional_moments(self.kernel, conditioned, new)

    def conditional_covariance(self, conditioned: Conditioned, new: Array) -> tuple[Array, Array]:
        """Return mean and covariance of f at rows with features `new`."""
        if isinstance(conditioned, sparse.Conditioned):
            return sparse.conditional_covariance(self.kernel, conditioned, new)
        return exact.conditional_covariance(self.kernel, conditioned, new)


def features(parameters: Parameters, x: Array, t: Array, remoteness: Array) -> Array:
    """Return rows as points of the space in which the kernel measures distance.

    Scaled inputs x_i / omega_i beside the latents of each row's levels (paper, LVGP covariance).
    """
    parts = [x / parameters.lengthscales]
    parts += [latents[t[:, j]] for j, latents in enumerate(parameters.latents)]
    parts.append(remoteness[:, None])
    return jnp.concatenate(parts, axis=1)


def inducing_features(parameters: Parameters, inducing: sparse.Inducing) -> Array:
    """Return inducing points as points of the same space as `features`."""
    parts = [inducing.x / parameters.lengthscales]
    parts += [
        weights @ latents
        for weights, latents in zip(inducing.weights, parameters.latents, strict=True)
    ]
    parts.append(jnp.zeros((len(inducing.x), 1), dtype=inducing.x.dtype))
    return jnp.concatenate(parts, axis=1)


class Groups(NamedTuple):
    """Observations at the same inputs, put together in order of first appearance."""

    first: np.ndarray
    """For each group, its first observation."""
    of: np.ndarray
    """For each observation, its group."""
    counts: np.ndarray


def groups(x: np.ndarray, t: np.ndarray) -> Groups:
    """Find the observations that share all inputs."""
    if len(x) == 0 or x.shape[1] + t.shape[1] == 0:
        return Groups(np.arange(len(x)), np.arange(len(x)), np.ones(len(x)))
    inputs = np.concatenate([x + 0.0, t], axis=1)
    _, first, of, counts = np.unique(
        inputs, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    return Groups(first[order], np.argsort(order)[of.ravel()], counts[order].astype(float))


def pack_rows(
    x: np.ndarray,
    t: np.ndarray,
    y: np.ndarray,
    jitter: float = 0.0,
    inducing: sparse.Inducing | None = None,
) -> Rows:
    """Return the distinct training rows padded to the size they are computed with."""
    first, of, counts = groups(x, t)
    rows, extra = len(first), exact.padded_size(len(first)) - len(first)
    means = np.bincount(of, y, rows) / counts if len(of) > rows else y
    after = np.maximum(np.arange(rows + extra) - rows + 1, 0)
    return Rows(
        x=jnp.asarray(np.pad(x[first], ((0, extra), (0, 0))), dtype=jnp.float64),
        t=jnp.asarray(np.pad(t[first], ((0, extra), (0, 0))), dtype=jnp.int32),
        y=jnp.asarray(np.pad(means, (0, extra)), dtype=jnp.float64),
        mask=jnp.asarray(after == 0, dtype=jnp.float64),
        remoteness=jnp.asarray(_OUT_OF_REACH * after, dtype=jnp.float64),
        jitter=jnp.asarray(jitter, dtype=jnp.float64),
        counts=jnp.asarray(np.pad(counts, (0, extra), constant_values=1.0), dtype=jnp.float64),
        scatter=jnp.asarray(np.sum((y - means[of]) ** 2), dtype=jnp.float64),
        inducing=None if inducing is None else jax.tree.map(jnp.asarray, inducing),
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
