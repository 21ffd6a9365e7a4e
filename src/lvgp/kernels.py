"""Correlation as a function of scaled squared distance, with its slope; one function a family.

Each function takes D^2, the squared distance over scaled quantitative inputs and latents stacked,
and returns k(D^2) and dk/dD^2. Working with D^2 keeps every slope finite where two rows coincide.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

Correlation = Callable[[Array], tuple[Array, Array]]


def rbf(squared_distance: Array) -> tuple[Array, Array]:
    """Squared exponential, the paper's: k = exp(-D^2 / 2)."""
    value = jnp.exp(-0.5 * squared_distance)
    return value, -0.5 * value


def matern52(squared_distance: Array) -> tuple[Array, Array]:
    """Matern 5/2: k = (1 + a + a^2 / 3) exp(-a), a = sqrt(5) D; dk/dD^2 = -5/6 (1 + a) exp(-a)."""
    a = jnp.sqrt(5.0 * squared_distance)
    decay = jnp.exp(-a)
    return (1.0 + a + a * a / 3.0) * decay, -5.0 / 6.0 * (1.0 + a) * decay


def matern32(squared_distance: Array) -> tuple[Array, Array]:
    """Matern 3/2: k = (1 + a) exp(-a), a = sqrt(3) D; dk/dD^2 = -3/2 exp(-a)."""
    a = jnp.sqrt(3.0 * squared_distance)
    decay = jnp.exp(-a)
    return (1.0 + a) * decay, -1.5 * decay


KERNELS: dict[str, Correlation] = {"rbf": rbf, "matern52": matern52, "matern32": matern32}


def squared_distances(left: Array, right: Array) -> Array:
    """Return |left_a - right_b|^2 for all pairs of rows, from one matrix product.

    Faster than differences of shape (n, m, p); the rounding of the product can fall below zero.
    """
    left_norm = jnp.sum(left * left, axis=1)
    right_norm = jnp.sum(right * right, axis=1)
    return jnp.maximum(left_norm[:, None] + right_norm[None, :] - 2.0 * (left @ right.T), 0.0)
