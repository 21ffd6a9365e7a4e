"""The exact Gaussian process: log marginal likelihood with its gradient, and conditional moments.

Both work on `features`, the (N, P) stack of scaled quantitative inputs x_i / omega_i and of the
latents z(t_j) of each row, so that one squared distance serves every kernel family:

    C = sigma^2 k(D^2) + diag(noise),    y ~ N(mu 1, C),    mu ~ N(0, 1 / mean_precision).

mu is integrated out exactly, or kept at its maximum-likelihood value (`integrate_mean=False`,
`mean_precision=0`).

Tables are padded so that those of similar length share one compiled program. A padding row has
mask 0, response 0 and features so far away that its correlations underflow to exactly zero; its
share of the likelihood is known in closed form and taken out again, so padding changes no result.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from lvgp.kernels import KERNELS, squared_distances

_LEAF = 16
_FEW = 258
_FIRST_ENDS = 12, 27, 34, 42
_ENDS = 2, 12, 18, 22, 27, 34, 42
_ROWS_WORTH_STRIPS = 90
"""Of the gradient's last products; for fewer rows, handling strips costs more than they save."""
_solve = partial(lax.linalg.triangular_solve, left_side=True, lower=True)


class Process(NamedTuple):
    """One setting of a Gaussian process on given rows: what the covariance is made of."""

    features: Array
    variance: Array
    noise: Array
    """One variance for each row."""
    mean_precision: Array


class Conditioned(NamedTuple):
    """What conditioning on the training rows leaves behind for predictions."""

    features: Array
    variance: Array
    cholesky: Array
    weights: Array
    """C^-1 (y - mean)."""
    ones_weights: Array
    """C^-1 1."""
    mean: Array
    """Posterior mean of mu."""
    mean_variance: Array
    """Posterior variance of mu; zero where mu is plugged in."""


def padded_size(rows: int) -> int:
    """Return the number of rows, padding included, that a table of `rows` rows is computed with.

    Tables often have a round number of rows, to which a row or two are added next. So up to 258
    rows, no size is a multiple of 5 or 8, or one more than that. Beyond, steps grow with the table,
    so that padding adds a few per cent at most, and sizes are an odd multiple of 8: rows a large
    power of two apart in memory would fight for the same cache lines (a Cholesky factor takes half
    as long again at 1024 as at 1000 rows).
    """
    if rows <= _FEW:
        start = 40 * (rows // 40)
        ends = _ENDS if start else _FIRST_ENDS
        return next(start + end for end in ends if start + end >= rows)
    step = 16
    while step * 32 < rows:
        step *= 2
    return -(-(rows - 7) // step) * step + 8


def covariance(kernel: str, process: Process) -> tuple[Array, Array]:
    """Return C, and the slope dk/dD^2 of the correlation in it."""
    correlation, slope = KERNELS[kernel](squared_distances(process.features, process.features))
    return process.variance * correlation + jnp.diag(process.noise), slope


def triangular_inverse(cholesky: Array) -> Array:
    """Return L^-1 by halving: [[A, 0], [B, C]]^-1 = [[A^-1, 0], [-C^-1 B A^-1, C^-1]].

    The diagonal blocks are solved in one batched call and the rest are matrix products, which on
    a CPU is up to twice as fast as one triangular solve against the identity.
    """
    rows = cholesky.shape[0]
    starts = range(0, rows - rows % _LEAF, _LEAF)
    inverses: list[Array] = []
    if starts:
        blocks = jnp.stack([cholesky[i : i + _LEAF, i : i + _LEAF] for i in starts])
        identity = jnp.broadcast_to(jnp.eye(_LEAF, dtype=cholesky.dtype), blocks.shape)
        inverses.extend(_solve(blocks, identity))
    if rows % _LEAF:
        i = rows - rows % _LEAF
        inverses.append(_solve(cholesky[i:, i:], jnp.eye(rows - i, dtype=cholesky.dtype)))

    def invert(first: int, last: int) -> Array:
        if last - first == 1:
            return inverses[first]
        middle = (first + last + 1) // 2
        upper, lower = invert(first, middle), invert(middle, last)
        below = cholesky[middle * _LEAF : last * _LEAF, first * _LEAF : middle * _LEAF]
        corner = -(lower @ (below @ upper))
        top = jnp.pad(upper, ((0, 0), (0, lower.shape[0])))
        return jnp.concatenate([top, jnp.concatenate([corner, lower], axis=1)], axis=0)

    return invert(0, len(inverses))


class Evidence(NamedTuple):
    """The log likelihood with mu integrated out or maximised over, and what is known of mu."""

    log_likelihood: Array
    mean: Array
    """Estimate of mu."""
    precision: Array
    """Its posterior precision."""


def without_mean(
    integrate_mean: bool,
    mean_precision: Array,
    products: Array,
    log_determinant: Array,
    rows: Array,
) -> Evidence:
    """Return log p(y) from [y, 1]'C^-1 [y, 1] and log|C|.

    With q = y'C^-1 y, a = 1'C^-1 1, b = 1'C^-1 y and c = a + mean_precision,
    log p(y) = -[q - b^2 / c + log|C| + log(c / mean_precision) + N log 2 pi] / 2;
    the term in log c is left out when mu is kept at its maximum.
    """
    precision = products[1, 1] + mean_precision
    mean = products[0, 1] / precision
    quadratic = products[0, 0] - mean * products[0, 1]
    if integrate_mean:
        log_determinant += jnp.log(precision) - jnp.log(mean_precision)
    constant = rows * jnp.log(2.0 * jnp.pi)
    return Evidence(-0.5 * (quadratic + log_determinant + constant), mean, precision)


def _evidence(
    integrate_mean: bool, process: Process, cholesky: Array, solved: Array, mask: Array
) -> Evidence:
    """The evidence from V = L^-1 [y, 1], the share of padding rows taken out."""
    log_determinant = 2.0 * jnp.sum(jnp.log(jnp.diagonal(cholesky)))
    log_determinant -= jnp.sum((1.0 - mask) * jnp.log(process.variance + process.noise))
    products = solved.T @ solved
    return without_mean(
        integrate_mean, process.mean_precision, products, log_determinant, jnp.sum(mask)
    )


def factor(total: Array) -> Array:
    """Return the lower Cholesky factor; NaN where there is none."""
    return lax.linalg.cholesky(total, symmetrize_input=False)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def log_marginal_likelihood(
    kernel: str, integrate_mean: bool, process: Process, y: Array, mask: Array
) -> Array:
    """Return log p(y | features, sigma^2, noise), mu integrated out or maximised over.

    NaN where the covariance is not numerically positive definite. The gradient with respect to
    `process` is hand-derived; `mean_precision` and `mask` count as constants.
    """
    cholesky = factor(covariance(kernel, process)[0])
    solved = _solve(cholesky, jnp.stack([y, mask], axis=1))
    return _evidence(integrate_mean, process, cholesky, solved, mask).log_likelihood


def _forward(
    kernel: str, integrate_mean: bool, process: Process, y: Array, mask: Array
) -> tuple[Array, tuple[Array, ...]]:
    """Value and gradient together: one Cholesky factor, one inverse.

    dlogp/dC = G = (w w' - C^-1 + u u' / c) / 2 with w = C^-1 (y - mu), u = C^-1 1 (the last term
    only when mu is integrated out), contracted analytically with dC: with H = G * dk/dD^2 the
    gradient of the features is 4 sigma^2 (diag(H 1) - H) features.
    """
    total, slope = covariance(kernel, process)
    cholesky = factor(total)
    inverse_factor = triangular_inverse(cholesky)
    solved = inverse_factor @ jnp.stack([y, mask], axis=1)
    value, mean, precision = _evidence(integrate_mean, process, cholesky, solved, mask)
    weights = inverse_factor.T @ solved
    residual_weights, ones_weights = weights[:, 0] - mean * weights[:, 1], weights[:, 1]
    left = jnp.stack([residual_weights, ones_weights / precision], axis=1)
    right = jnp.stack([residual_weights, ones_weights * float(integrate_mean)], axis=1)
    features_pull, diagonal = _contract(inverse_factor, left, right, process.features, slope)
    # tr(S C) in closed form, of which the noise holds its part of the diagonal
    total_share = residual_weights @ (y - mean * mask) - len(y)
    total_share += jnp.sum(left[:, 1] * mask) * float(integrate_mean)
    signal_share = (total_share - process.noise @ diagonal) / process.variance
    padding = (1.0 - mask) / (process.variance + process.noise)
    return value, (
        2.0 * process.variance * features_pull,
        0.5 * (signal_share + jnp.sum(padding)),
        0.5 * (diagonal + padding),
        residual_weights,
    )


def _contract(
    inverse_factor: Array,
    left: Array,
    right: Array,
    features: Array,
    slope: Array,
) -> tuple[Array, Array]:
    """Contract S = left right' - W'W (W = L^-1) with the features' distances; also its diagonal.

    S is symmetric and only its lower half is formed, strip by strip: rows start..end of W'W need
    the rows of W from start on and the columns before end, the others being zero. What lies left
    of a strip's diagonal block counts for its mirror image too.
    """
    rows = len(features)
    step = -(-rows // (4 if rows >= _ROWS_WORTH_STRIPS else 1))
    with_ones = jnp.concatenate([features, jnp.ones_like(features[:, :1], shape=(rows, 1))], 1)
    pulled = jnp.zeros_like(with_ones)
    diagonals = []
    for start in range(0, rows, step):
        end = min(start + step, rows)
        inverse = inverse_factor[start:, start:end].T @ inverse_factor[start:, :end]
        strip = left[start:end] @ right[:end].T - inverse
        pull = strip * slope[start:end, :end]
        pulled = pulled.at[start:end].add(pull @ with_ones[:end])
        pulled = pulled.at[:start].add(pull[:, :start].T @ with_ones[start:end])
        diagonals.append(jnp.diagonal(strip[:, start:]))
    return pulled[:, -1:] * features - pulled[:, :-1], jnp.concatenate(diagonals)


def _backward(
    kernel: str, integrate_mean: bool, residuals: tuple[Array, ...], cotangent: Array
) -> tuple[Process, Array, None]:
    features, variance, noise, residual_weights = (cotangent * part for part in residuals)
    constant = jnp.zeros_like(variance)
    return Process(features, variance, noise, constant), -residual_weights, None


log_marginal_likelihood.defvjp(_forward, _backward)


def fitted_mean(process: Process, conditioned: Conditioned, y: Array) -> Array:
    """Return the mean of f at the training rows: what the noise leaves of y."""
    return y - process.noise * conditioned.weights


def condition(
    kernel: str, integrate_mean: bool, process: Process, y: Array, mask: Array
) -> Conditioned:
    """Condition the process on the training rows."""
    cholesky = factor(covariance(kernel, process)[0])
    solved = _solve(cholesky, jnp.stack([y, mask], axis=1))
    _, mean, precision = _evidence(integrate_mean, process, cholesky, solved, mask)
    weights = _solve(cholesky, solved, transpose_a=True)
    return Conditioned(
        features=process.features,
        variance=process.variance,
        cholesky=cholesky,
        weights=weights[:, 0] - mean * weights[:, 1],
        ones_weights=weights[:, 1],
        mean=mean,
        mean_variance=1.0 / precision if integrate_mean else jnp.zeros_like(mean),
    )


def left_out(
    kernel: str, integrate_mean: bool, process: Process, y: Array, mask: Array
) -> tuple[Array, Array, Array]:
    """Return mean and variance of each y_i given the others (noise included).

    y_i - [C^-1 y]_i / [C^-1]_ii and 1 / [C^-1]_ii, C with the uncertainty of mu in it. Third comes
    what a likelihood leaves out of the variance; nothing here.
    """
    conditioned = condition(kernel, integrate_mean, process, y, mask)
    precision = jnp.sum(triangular_inverse(conditioned.cholesky) ** 2, axis=0)
    precision -= conditioned.mean_variance * conditioned.ones_weights**2
    return y - conditioned.weights / precision, 1.0 / precision, jnp.zeros(1, y.dtype)


class _Explaining(Protocol):
    """What exact and sparse processes have in common once conditioned."""

    @property
    def features(self) -> Array: ...
    @property
    def variance(self) -> Array: ...
    @property
    def weights(self) -> Array: ...
    @property
    def ones_weights(self) -> Array: ...
    @property
    def mean(self) -> Array: ...


def cross(kernel: str, conditioned: _Explaining, features: Array) -> tuple[Array, Array, Array]:
    """Return K(w*, w), the mean at w*, and the share of mu not yet explained, 1 - 1'C^-1 k."""
    distances = squared_distances(features, conditioned.features)
    covariances = conditioned.variance * KERNELS[kernel](distances)[0]
    mean = conditioned.mean + covariances @ conditioned.weights
    return covariances, mean, 1.0 - covariances @ conditioned.ones_weights


def conditional_moments(
    kernel: str, conditioned: Conditioned, features: Array
) -> tuple[Array, Array]:
    """Return mean and variance of f at new rows (paper, predictive equations)."""
    covariances, mean, unexplained = cross(kernel, conditioned, features)
    explained = _solve(conditioned.cholesky, covariances.T)
    variance = conditioned.variance - jnp.sum(explained**2, axis=0)
    variance = variance + conditioned.mean_variance * unexplained**2
    return mean, jnp.maximum(variance, 0.0)


def conditional_covariance(
    kernel: str, conditioned: Conditioned, features: Array
) -> tuple[Array, Array]:
    """Return mean and covariance of f at new rows."""
    covariances, mean, unexplained = cross(kernel, conditioned, features)
    explained = _solve(conditioned.cholesky, covariances.T)
    prior = conditioned.variance * KERNELS[kernel](squared_distances(features, features))[0]
    spread = conditioned.mean_variance * unexplained[:, None] * unexplained[None, :]
    return mean, prior - explained.T @ explained + spread
