"""BFGS compiled as one program: minimise a smooth function from one start.

The whole search runs inside XLA, so that a cheap function costs what its arithmetic costs; driven
from Python, calling the function takes several times as long as evaluating it. The inverse Hessian
is kept whole: latents, precisions and noise are strongly coupled, and SciPy's limited memory takes
several times the evaluations a start (benchmarks/optimizers.py prints both).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

_SUFFICIENT_DECREASE = 1e-4
_CURVATURE = 0.9
_WINDOW = 10
_MOST_TRIALS = 30

Objective = Callable[[Array], tuple[Array, Array]]


class Minimum(NamedTuple):
    """Where a search ended."""

    point: Array
    value: Array
    """NaN when the function is not finite at the start."""
    evaluations: Array
    converged: Array


class _Search(NamedTuple):
    point: Array
    value: Array
    gradient: Array
    inverse_hessian: Array
    scaled: Array
    """Whether the inverse Hessian has been given the scale of the function."""
    direction: Array
    step: Array
    low: Array
    high: Array
    """Bracket of acceptable steps along the direction."""
    trials: Array
    evaluations: Array
    recent: Array
    """Values at the last accepted points, newest last."""
    stopped: Array
    converged: Array


def minimize(
    objective: Objective,
    start: Array,
    tolerance: Array | float,
    most_evaluations: Array | int = 5000,
) -> Minimum:
    """Minimise `objective`, a function returning value and gradient; points may be NaN.

    Converged when ten accepted steps together gain less than `tolerance`, or the line search
    finds nothing better. Each loop evaluates once.
    """
    value, gradient = objective(start)
    search = _Search(
        point=start,
        value=value,
        gradient=gradient,
        inverse_hessian=jnp.eye(len(start), dtype=start.dtype),
        scaled=jnp.asarray(False),
        direction=-gradient,
        step=1.0 / jnp.maximum(jnp.sum(jnp.abs(gradient)), 1.0),
        low=jnp.zeros_like(value),
        high=jnp.full_like(value, jnp.inf),
        trials=jnp.asarray(0),
        evaluations=jnp.asarray(1),
        recent=jnp.full((_WINDOW,), jnp.inf, dtype=start.dtype),
        stopped=~(jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))),
        converged=jnp.asarray(False),
    )

    def unfinished(search: _Search) -> Array:
        return ~search.stopped & (search.evaluations < most_evaluations)

    def advance(search: _Search) -> _Search:
        trial = search.point + search.step * search.direction
        value, gradient = objective(trial)
        slope = search.gradient @ search.direction
        finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        target = search.value + _SUFFICIENT_DECREASE * search.step * slope
        lower = finite & (value <= target)
        flat_enough = gradient @ search.direction >= _CURVATURE * slope
        search = search._replace(evaluations=search.evaluations + 1)
        return lax.cond(
            lower & flat_enough,
            lambda: _accept(search, trial, value, gradient, tolerance),
            lambda: _narrow(search, value, slope, lower, finite),
        )

    end = lax.while_loop(unfinished, advance, search)
    return Minimum(end.point, end.value, end.evaluations, end.converged)


def _accept(
    search: _Search, point: Array, value: Array, gradient: Array, tolerance: Array | float
) -> _Search:
    """Move to `point`, update the inverse Hessian and choose the next direction."""
    inverse_hessian, updated = _bfgs_update(
        search.inverse_hessian, search.scaled, point - search.point, gradient - search.gradient
    )
    direction = -(inverse_hessian @ gradient)
    direction = jnp.where(direction @ gradient < 0, direction, -gradient)
    settled = search.recent[0] - value < tolerance
    return search._replace(
        point=point,
        value=value,
        gradient=gradient,
        inverse_hessian=inverse_hessian,
        scaled=search.scaled | updated,
        direction=direction,
        step=jnp.ones_like(search.step),
        low=jnp.zeros_like(search.low),
        high=jnp.full_like(search.high, jnp.inf),
        trials=jnp.zeros_like(search.trials),
        recent=jnp.append(search.recent[1:], value),
        stopped=settled,
        converged=settled,
    )


def _bfgs_update(
    inverse_hessian: Array, scaled: Array, moved: Array, change: Array
) -> tuple[Array, Array]:
    """BFGS update of H; left out where the curvature along the step is not positive."""
    curvature = moved @ change
    positive = curvature > 1e-12 * jnp.linalg.norm(moved) * jnp.linalg.norm(change)
    curvature = jnp.where(positive, curvature, 1.0)
    scale = curvature / jnp.maximum(change @ change, 1e-300)
    initial = scale * jnp.eye(len(moved), dtype=moved.dtype)
    before = jnp.where(scaled | ~positive, inverse_hessian, initial)
    bent = before @ change
    cross = moved[:, None] * bent[None, :]
    stretch = (1.0 + change @ bent / curvature) / curvature
    after = before - (cross + cross.T) / curvature + stretch * moved[:, None] * moved[None, :]
    return jnp.where(positive, after, before), positive


def _narrow(search: _Search, value: Array, slope: Array, lower: Array, finite: Array) -> _Search:
    """Choose the next trial step: weak Wolfe conditions by bracketing, first by a parabola."""
    step = search.step
    low, high = jnp.where(lower, step, search.low), jnp.where(lower, search.high, step)
    parabola = -0.5 * slope * step**2 / (value - search.value - slope * step)
    parabola = jnp.clip(parabola, 0.1 * step, 0.5 * step)
    usable = finite & ~lower & (search.low == 0) & jnp.isfinite(parabola)
    halved = jnp.where(jnp.isfinite(high), 0.5 * (low + high), 2.5 * step)
    exhausted = search.trials >= _MOST_TRIALS
    return search._replace(
        step=jnp.where(usable, parabola, halved),
        low=low,
        high=high,
        trials=search.trials + 1,
        stopped=exhausted,
        converged=exhausted,
    )
