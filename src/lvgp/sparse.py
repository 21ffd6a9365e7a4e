"""Sparse Gaussian processes, FITC and VFE: the same functions as `exact`, in O(N M^2).

M inducing points u stand for the training rows. With Q = K_nm K_mm^-1 K_mn (paper, appendix on
sparse models),

    FITC:  y ~ N(mu 1, Q + diag(sigma^2 - diag Q) + diag(noise)),
    VFE:   y ~ N(mu 1, Q + diag(noise)),  minus the penalty  sum_i (sigma^2 - Q_ii) / (2 noise_i),

the latter a lower bound of the exact log likelihood. Nothing of size N x N is ever formed: with
A = L_mm^-1 K_mn, the diagonal part Lambda and B = I + A Lambda^-1 A',

    C^-1 = Lambda^-1 - Lambda^-1 A' B^-1 A Lambda^-1,    |C| = |B| |Lambda|.

Arrays over rows and inducing points are (M, N). Padding rows are as in `exact`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lvgp.exact import Evidence, cross, factor, triangular_inverse, without_mean
from lvgp.kernels import KERNELS, squared_distances

RULES = ("fitc", "vfe")
_JITTER = 1e-10
"""Added to the inducing points' correlation matrix, which is singular where two coincide."""


class Inducing(NamedTuple):
    """Inducing points: inputs, and for each qualitative column weights of its levels.

    A point's latents are the weighted mean of the levels' latents: it moves with them and stays
    in their convex hull.
    """

    x: Any
    weights: tuple[Any, ...]
    """(M, L_j) each; rows sum to 1."""


class Process(NamedTuple):
    """One setting of a sparse Gaussian process on given rows."""

    features: Array
    inducing: Array
    """The inducing points' features, (M, P)."""
    variance: Array
    noise: Array
    """One variance for each row."""
    mean_precision: Array


class Conditioned(NamedTuple):
    """What conditioning on the training rows leaves behind for predictions."""

    features: Array
    """Of the inducing points."""
    variance: Array
    inverse_factor: Array
    """L_mm^-1."""
    inner_inverse: Array
    """L_B^-1, the inverse Cholesky factor of B."""
    weights: Array
    ones_weights: Array
    mean: Array
    mean_variance: Array


class _Parts(NamedTuple):
    """What value and gradient share; letters as in the module's docstring."""

    inner_slope: Array
    outer_slope: Array
    inverse_factor: Array
    projected: Array
    """A."""
    residual: Array
    """sigma^2 - diag Q, zero for padding."""
    diagonal: Array
    """Lambda."""
    inner: Array
    """B."""
    inner_inverse: Array
    """L_B^-1."""
    solved: Array
    """L_B^-1 A Lambda^-1 [y, 1]."""
    evidence: Evidence


def _parts(
    rule: str, kernel: str, integrate_mean: bool, process: Process, y: Array, mask: Array
) -> _Parts:
    points = process.inducing
    inner, inner_slope = KERNELS[kernel](squared_distances(points, points))
    inner = process.variance * (inner + _JITTER * jnp.eye(len(points), dtype=inner.dtype))
    outer, outer_slope = KERNELS[kernel](squared_distances(points, process.features))
    inverse_factor = triangular_inverse(factor(inner))
    projected = (process.variance * inverse_factor) @ outer
    residual = mask * jnp.maximum(process.variance - jnp.sum(projected**2, axis=0), 0.0)
    diagonal = process.noise + residual if rule == "fitc" else process.noise
    scaled = projected / diagonal
    within = jnp.eye(len(points), dtype=inner.dtype) + scaled @ projected.T
    inner_factor = factor(within)
    inner_inverse = triangular_inverse(inner_factor)
    targets = jnp.stack([y, mask], axis=1)
    solved = inner_inverse @ (scaled @ targets)
    products = targets.T @ (targets / diagonal[:, None]) - solved.T @ solved
    log_determinant = 2.0 * jnp.sum(jnp.log(jnp.diagonal(inner_factor)))
    log_determinant += jnp.sum(mask * jnp.log(diagonal))
    evidence = without_mean(
        integrate_mean, process.mean_precision, products, log_determinant, jnp.sum(mask)
    )
    if rule == "vfe":
        penalty = 0.5 * jnp.sum(residual / process.noise)
        evidence = evidence._replace(log_likelihood=evidence.log_likelihood - penalty)
    return _Parts(
        inner_slope,
        outer_slope,
        inverse_factor,
        projected,
        residual,
        diagonal,
        within,
        inner_inverse,
        solved,
        evidence,
    )


def _inverse_times_targets(parts: _Parts, y: Array, mask: Array) -> tuple[Array, Array]:
    """Return C^-1 (y - mu) and C^-1 1."""
    through = parts.projected.T @ (parts.inner_inverse.T @ parts.solved)
    weights = (jnp.stack([y, mask], axis=1) - through) / parts.diagonal[:, None]
    return weights[:, 0] - parts.evidence.mean * weights[:, 1], weights[:, 1]


def _inverse_diagonal(parts: _Parts, solved_rows: Array) -> Array:
    """Return the diagonal of C^-1; `solved_rows` is B^-1 A."""
    explained = jnp.sum(parts.projected * solved_rows, axis=0)
    return (1.0 - explained / parts.diagonal) / parts.diagonal


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def log_marginal_likelihood(
    rule: str, kernel: str, integrate_mean: bool, process: Process, y: Array, mask: Array
) -> Array:
    """Return FITC's log p(y), or VFE's lower bound of it, mu integrated out or maximised over.

    The gradient with respect to `process` is hand-derived; `mean_precision` and `mask` count as
    constants.
    """
    return _parts(rule, kernel, integrate_mean, process, y, mask).evidence.log_likelihood


def _forward(
    rule: str, kernel: str, integrate_mean: bool, process: Process, y: Array, mask: Array
) -> tuple[Array, tuple[Process, Array]]:
    """Value and gradient together.

    As in `exact`, dlogp/dC = G = (w w' - C^-1 + u u' / c) / 2. Both rules then have
    dlogp = tr(E dQ) + ..., E = G + diag(h), with h = -diag G for FITC (whose diagonal holds -Q)
    and 1 / (2 noise) for VFE (from its penalty). dQ contracts with dK_mn and dK_mm through
    P E = L_mm^-T F and P E P' = L_mm^-T (F A') L_mm^-1, P = K_mm^-1 K_mn, where

        F = A E = [(A w) w' + (A u) u' / c - B^-1 A Lambda^-1] / 2 + A diag(h).

    For VFE F A' needs no sum over rows: A Lambda^-1 A' = B - I.
    """
    parts = _parts(rule, kernel, integrate_mean, process, y, mask)
    residual_weights, ones_weights = _inverse_times_targets(parts, y, mask)
    ones_share = ones_weights * (float(integrate_mean) / parts.evidence.precision)
    inverse = parts.inner_inverse.T @ parts.inner_inverse
    solved_rows = inverse @ parts.projected
    slope_of_diagonal = residual_weights**2 + ones_share * ones_weights
    slope_of_diagonal = 0.5 * mask * (slope_of_diagonal - _inverse_diagonal(parts, solved_rows))
    noise = slope_of_diagonal
    if rule == "fitc":
        on_diagonal, variance = -slope_of_diagonal, jnp.sum(slope_of_diagonal)
    else:
        on_diagonal = 0.5 * mask / process.noise
        variance = -jnp.sum(on_diagonal)
        noise += 0.5 * parts.residual / process.noise**2
    right = jnp.stack([residual_weights, ones_weights])
    left = 0.5 * (parts.projected @ jnp.stack([residual_weights, ones_share], axis=1))
    pull = left @ right
    pull += parts.projected * on_diagonal - solved_rows * (0.5 / parts.diagonal)
    if rule == "fitc":
        inner_pull = pull @ parts.projected.T
    else:
        identity = jnp.eye(len(inverse), dtype=inverse.dtype)
        inner_pull = left @ (right @ parts.projected.T)
        inner_pull += 0.5 * (parts.inner + inverse) - identity
    features, inducing = _contract(process, parts, pull, inner_pull)
    variance += jnp.trace(inner_pull) / process.variance
    constant = jnp.zeros_like(process.mean_precision)
    gradient = Process(features, inducing, variance, noise, constant)
    return parts.evidence.log_likelihood, (gradient, -residual_weights)


def _contract(
    process: Process, parts: _Parts, pull: Array, inner_pull: Array
) -> tuple[Array, Array]:
    """Return the gradient with respect to the features of rows and of inducing points.

    For weights V on squared distances |u_m - f_n|^2 that is 2 (V'1 f - V'u) and 2 (V1 u - V f).
    """
    features, points, inverse = process.features, process.inducing, parts.inverse_factor
    # laid out in memory: XLA takes twice as long for a product with a transposed factor
    transposed = jax.lax.optimization_barrier(inverse.T)
    outer = (2.0 * process.variance) * (transposed @ pull) * parts.outer_slope
    inner = -process.variance * (transposed @ inner_pull @ inverse) * parts.inner_slope
    rows = 2.0 * (jnp.sum(outer, axis=0)[:, None] * features - outer.T @ points)
    moved = jnp.sum(outer, axis=1)[:, None] * points - outer @ features
    moved += 2.0 * (jnp.sum(inner, axis=1)[:, None] * points - inner @ points)
    return rows, 2.0 * moved


def _backward(
    rule: str,
    kernel: str,
    integrate_mean: bool,
    residuals: tuple[Process, Array],
    cotangent: Array,
) -> tuple[Process, Array, None]:
    gradient, y = jax.tree.map(lambda part: cotangent * part, residuals)
    return gradient, y, None


log_marginal_likelihood.defvjp(_forward, _backward)


def condition(
    rule: str, kernel: str, integrate_mean: bool, process: Process, y: Array, mask: Array
) -> Conditioned:
    """Condition the process on the training rows."""
    parts = _parts(rule, kernel, integrate_mean, process, y, mask)
    _, mean, precision = parts.evidence
    weights = parts.inverse_factor.T @ (parts.inner_inverse.T @ parts.solved)
    return Conditioned(
        features=process.inducing,
        variance=process.variance,
        inverse_factor=parts.inverse_factor,
        inner_inverse=parts.inner_inverse,
        weights=weights[:, 0] - mean * weights[:, 1],
        ones_weights=weights[:, 1],
        mean=mean,
        mean_variance=1.0 / precision if integrate_mean else jnp.zeros_like(mean),
    )


def fitted_mean(kernel: str, process: Process, conditioned: Conditioned) -> Array:
    """Return the mean of f at the training rows, as it is predicted elsewhere."""
    return cross(kernel, conditioned, process.features)[1]


def left_out(
    rule: str, kernel: str, integrate_mean: bool, process: Process, y: Array, mask: Array
) -> tuple[Array, Array]:
    """Return mean and variance of each y_i given the others (noise included).

    As in `exact`, with C the rule's covariance; VFE's lacks what the inducing points do not
    explain of row i, which predictions have and is added.
    """
    parts = _parts(rule, kernel, integrate_mean, process, y, mask)
    residual_weights, ones_weights = _inverse_times_targets(parts, y, mask)
    solved_rows = parts.inner_inverse.T @ (parts.inner_inverse @ parts.projected)
    precision = _inverse_diagonal(parts, solved_rows)
    if integrate_mean:
        precision -= ones_weights**2 / parts.evidence.precision
    unexplained = parts.residual if rule == "vfe" else 0.0
    return y - residual_weights / precision, 1.0 / precision + unexplained


def conditional_moments(
    kernel: str, conditioned: Conditioned, features: Array
) -> tuple[Array, Array]:
    """Return mean and variance of f at new rows (paper, sparse predictive equations)."""
    covariances, mean, unexplained = cross(kernel, conditioned, features)
    projected = covariances @ conditioned.inverse_factor.T
    known = projected @ conditioned.inner_inverse.T
    variance = conditioned.variance - jnp.sum(projected**2, axis=1) + jnp.sum(known**2, axis=1)
    variance = variance + conditioned.mean_variance * unexplained**2
    return mean, jnp.maximum(variance, 0.0)


def conditional_covariance(
    kernel: str, conditioned: Conditioned, features: Array
) -> tuple[Array, Array]:
    """Return mean and covariance of f at new rows."""
    covariances, mean, unexplained = cross(kernel, conditioned, features)
    prior = conditioned.variance * KERNELS[kernel](squared_distances(features, features))[0]
    projected = covariances @ conditioned.inverse_factor.T
    known = projected @ conditioned.inner_inverse.T
    spread = conditioned.mean_variance * unexplained[:, None] * unexplained[None, :]
    return mean, prior - projected @ projected.T + known @ known.T + spread
