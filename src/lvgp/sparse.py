"""Sparse Gaussian processes, FITC and VFE: the same functions as `exact`, in O(N M^2).

M inducing points u stand for the training rows. With Q = K_nm K_mm^-1 K_mn (paper, appendix on
sparse models),

    FITC:  y ~ N(mu 1, Q + diag(sigma^2 - diag Q) + diag(noise)),
    VFE:   y ~ N(mu 1, Q + diag(noise)),  minus the penalty  sum_i (sigma^2 - Q_ii) / (2 noise_i),

the latter a lower bound of the exact log likelihood. Nothing of size N x N is ever formed: with
A = L_mm^-1 K_mn, the diagonal part Lambda and B = I + A Lambda^-1 A',

    C^-1 = Lambda^-1 - Lambda^-1 A' B^-1 A Lambda^-1,    |C| = |B| |Lambda|.

Arrays over rows and inducing points are (M, N) and computed in blocks of rows: whole ones would
leave the processor's cache, and time grow faster than N. Padding rows are as in `exact`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lvgp.exact import Evidence, cross, factor, triangular_inverse, without_mean
from lvgp.kernels import KERNELS, squared_distances

RULES = ("fitc", "vfe")
_BLOCK = 1024
_JITTER = 1e-12
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


class _Rows(NamedTuple):
    """Training rows in blocks: a leading axis counts them."""

    features: Array
    noise: Array
    y: Array
    mask: Array

    @property
    def targets(self) -> Array:
        """Of one block: [y, 1], padding zero."""
        return jnp.stack([self.y, self.mask], axis=1)


class _Block(NamedTuple):
    """What value and gradient share of a block of rows; letters as in the module's docstring."""

    slope: Array
    projected: Array
    """A."""
    residual: Array
    """sigma^2 - diag Q, zero for padding."""
    diagonal: Array
    """Lambda."""


class _Parts(NamedTuple):
    """What value and gradient share."""

    inner_slope: Array
    inverse_factor: Array
    blocks: _Block
    """Each with a leading axis."""
    inner: Array
    """B."""
    inner_inverse: Array
    """L_B^-1."""
    solved: Array
    """L_B^-1 A Lambda^-1 [y, 1]."""
    evidence: Evidence

    @property
    def projected_weights(self) -> Array:
        """A C^-1 [y, 1] = B^-1 A Lambda^-1 [y, 1]."""
        return self.inner_inverse.T @ self.solved


def _in_blocks(process: Process, y: Array, mask: Array) -> _Rows:
    """Split rows so that what is computed of a block stays in the processor's cache."""
    count = -(-len(y) // _BLOCK)
    size = -(-len(y) // count)
    extra = count * size - len(y)

    def split(array: Array, fill: float = 0.0) -> Array:
        ends = [(0, extra)] + [(0, 0)] * (array.ndim - 1)
        return jnp.pad(array, ends, constant_values=fill).reshape(count, size, *array.shape[1:])

    return _Rows(split(process.features), split(process.noise, 1.0), split(y), split(mask))


def _over(function: Callable[..., tuple[Any, Any]], *blocks: Any) -> tuple[Any, Any]:
    """Return the sum over blocks of what `function` gives first, and all it gives second."""
    first = jax.tree.map(lambda part: part[0], blocks)
    if len(jax.tree.leaves(blocks)[0]) == 1:
        sums, kept = function(*first)
        return sums, jax.tree.map(lambda part: part[None], kept)
    shapes, _ = jax.eval_shape(function, *first)
    zeros = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), shapes)

    def step(total: Any, block: Any) -> tuple[Any, Any]:
        sums, kept = function(*block)
        return jax.tree.map(jnp.add, total, sums), kept

    return jax.lax.scan(step, zeros, blocks)


def _parts(rule: str, kernel: str, integrate_mean: bool, process: Process, rows: _Rows) -> _Parts:
    identity = jnp.eye(len(process.inducing), dtype=rows.y.dtype)
    # distances from one matrix product lose digits far from the origin
    centre = jnp.mean(process.inducing, axis=0)
    points = process.inducing - centre
    inner, inner_slope = KERNELS[kernel](squared_distances(points, points))
    inverse_factor = triangular_inverse(factor(process.variance * (inner + _JITTER * identity)))

    def project(rows: _Rows) -> tuple[tuple[Array, ...], _Block]:
        outer, slope = KERNELS[kernel](squared_distances(points, rows.features - centre))
        projected = (process.variance * inverse_factor) @ (outer * rows.mask)
        residual = rows.mask * jnp.maximum(process.variance - jnp.sum(projected**2, axis=0), 0.0)
        diagonal = rows.noise + residual if rule == "fitc" else rows.noise
        scaled = projected / diagonal
        products = rows.targets.T @ (rows.targets / diagonal[:, None])
        log_diagonal = jnp.sum(rows.mask * jnp.log(diagonal))
        unexplained = jnp.sum(residual / rows.noise)
        sums = scaled @ projected.T, scaled @ rows.targets, products, log_diagonal, unexplained
        return sums, _Block(slope, projected, residual, diagonal)

    (within, through, products, log_diagonal, unexplained), blocks = _over(project, rows)
    inner_factor = factor(identity + within)
    inner_inverse = triangular_inverse(inner_factor)
    solved = inner_inverse @ through
    log_determinant = 2.0 * jnp.sum(jnp.log(jnp.diagonal(inner_factor))) + log_diagonal
    evidence = without_mean(
        integrate_mean,
        process.mean_precision,
        products - solved.T @ solved,
        log_determinant,
        jnp.sum(rows.mask),
    )
    if rule == "vfe":
        bound = evidence.log_likelihood - 0.5 * unexplained
        evidence = evidence._replace(log_likelihood=bound)
    inner = identity + within
    return _Parts(inner_slope, inverse_factor, blocks, inner, inner_inverse, solved, evidence)


def _inverse_times_targets(parts: _Parts, rows: _Rows, block: _Block) -> tuple[Array, Array]:
    """Return C^-1 (y - mu) and C^-1 1 of a block of rows."""
    through = block.projected.T @ parts.projected_weights
    weights = (rows.targets - through) / block.diagonal[:, None]
    return weights[:, 0] - parts.evidence.mean * weights[:, 1], weights[:, 1]


def _inverse_diagonal(block: _Block, solved_rows: Array) -> Array:
    """Return the diagonal of C^-1 at a block of rows; `solved_rows` is B^-1 A."""
    explained = jnp.sum(block.projected * solved_rows, axis=0)
    return (1.0 - explained / block.diagonal) / block.diagonal


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def log_marginal_likelihood(
    rule: str, kernel: str, integrate_mean: bool, process: Process, y: Array, mask: Array
) -> Array:
    """Return FITC's log p(y), or VFE's lower bound of it, mu integrated out or maximised over.

    The gradient with respect to `process` is hand-derived; `mean_precision` and `mask` count as
    constants.
    """
    rows = _in_blocks(process, y, mask)
    return _parts(rule, kernel, integrate_mean, process, rows).evidence.log_likelihood


def _forward(
    rule: str, kernel: str, integrate_mean: bool, process: Process, y: Array, mask: Array
) -> tuple[Array, tuple[Process, Array]]:
    """Value and gradient together.

    As in `exact`, dlogp/dC = G = (w w' - C^-1 + u u' / c) / 2. Both rules then have
    dlogp = tr(E dQ) + ..., E = G + diag(h), with h = -diag G for FITC (whose diagonal holds -Q)
    and 1 / (2 noise) for VFE (from its penalty). dQ contracts with dK_mn and dK_mm through
    P E = L_mm^-T F and P E P' = L_mm^-T (F A') L_mm^-1, P = K_mm^-1 K_mn, where

        F = A E = [(A w) w' + (A u) u' / c - B^-1 A Lambda^-1] / 2 + A diag(h).

    A w and A u are known from B; for VFE so is F A', because A Lambda^-1 A' = B - I.
    """
    rows = _in_blocks(process, y, mask)
    parts = _parts(rule, kernel, integrate_mean, process, rows)
    share = float(integrate_mean) / parts.evidence.precision
    of_y, of_ones = parts.projected_weights.T
    of_residuals = of_y - parts.evidence.mean * of_ones
    pulled = jnp.stack([of_residuals, of_ones], axis=1)
    left = 0.5 * jnp.stack([of_residuals, share * of_ones], axis=1)
    inverse = parts.inner_inverse.T @ parts.inner_inverse
    # laid out in memory: XLA takes twice as long for a product with a transposed factor
    transposed = jax.lax.optimization_barrier(parts.inverse_factor.T)

    def pull_rows(rows: _Rows, block: _Block) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        residual_weights, ones_weights = _inverse_times_targets(parts, rows, block)
        solved_rows = inverse @ block.projected
        noise = residual_weights**2 + share * ones_weights**2
        noise = 0.5 * rows.mask * (noise - _inverse_diagonal(block, solved_rows))
        if rule == "fitc":
            on_diagonal, variance = -noise, jnp.sum(noise)
        else:
            on_diagonal = 0.5 * rows.mask / rows.noise
            variance = -jnp.sum(on_diagonal)
            noise += 0.5 * block.residual / rows.noise**2
        pull = left @ jnp.stack([residual_weights, ones_weights])
        pull += block.projected * on_diagonal - solved_rows * (0.5 / block.diagonal)
        inner_pull = pull @ block.projected.T if rule == "fitc" else jnp.zeros(())
        weights = (2.0 * process.variance) * (transposed @ pull) * block.slope
        features, moved = _by_distance(weights, process.inducing, rows.features)
        return (variance, inner_pull, moved), (features, noise, -residual_weights)

    (variance, inner_pull, moved), of_rows = _over(pull_rows, rows, parts.blocks)
    if rule == "vfe":
        identity = jnp.eye(len(inverse), dtype=inverse.dtype)
        inner_pull = left @ pulled.T + 0.5 * (parts.inner + inverse) - identity
    weights = -process.variance * (transposed @ inner_pull @ parts.inverse_factor)
    moved += 2.0 * _by_distance(weights * parts.inner_slope, process.inducing, process.inducing)[1]
    variance += jnp.trace(inner_pull) / process.variance
    features, noise, y_slope = (part.reshape(-1, *part.shape[2:])[: len(y)] for part in of_rows)
    constant = jnp.zeros_like(process.mean_precision)
    gradient = Process(features, moved, variance, noise, constant)
    return parts.evidence.log_likelihood, (gradient, y_slope)


def _by_distance(weights: Array, points: Array, features: Array) -> tuple[Array, Array]:
    """Return the gradient with respect to the features of rows, and to the inducing points.

    For weights V on squared distances |u_m - f_n|^2 that is 2 (V'1 f - V'u) and 2 (V1 u - V f).
    """
    rows = jnp.sum(weights, axis=0)[:, None] * features - weights.T @ points
    moved = jnp.sum(weights, axis=1)[:, None] * points - weights @ features
    return 2.0 * rows, 2.0 * moved


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
    parts = _parts(rule, kernel, integrate_mean, process, _in_blocks(process, y, mask))
    _, mean, precision = parts.evidence
    weights = parts.inverse_factor.T @ parts.projected_weights
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
) -> tuple[Array, Array, Array]:
    """Return mean and variance of each y_i given the others (noise included).

    As in `exact`, with C the rule's covariance. Third comes what the inducing points do not explain
    of each row: predictions have it, VFE's C has not (its penalty stands for it), FITC's has.
    """
    rows = _in_blocks(process, y, mask)
    parts = _parts(rule, kernel, integrate_mean, process, rows)

    def predict(rows: _Rows, block: _Block) -> tuple[tuple[()], tuple[Array, Array, Array]]:
        residual_weights, ones_weights = _inverse_times_targets(parts, rows, block)
        solved_rows = parts.inner_inverse.T @ (parts.inner_inverse @ block.projected)
        precision = _inverse_diagonal(block, solved_rows)
        if integrate_mean:
            precision -= ones_weights**2 / parts.evidence.precision
        # a difference of nearly equal numbers where there is hardly any noise
        precision = jnp.maximum(precision, 1e-15 / block.diagonal)
        return (), (rows.y - residual_weights / precision, 1.0 / precision, block.residual)

    _, (mean, variance, residual) = _over(predict, rows, parts.blocks)
    mean, variance, residual = (part.reshape(-1)[: len(y)] for part in (mean, variance, residual))
    return mean, variance, residual if rule == "vfe" else jnp.zeros(1, y.dtype)


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
