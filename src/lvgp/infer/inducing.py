"""The mode of a sparse model: parameters and inducing points together.

Points start at training rows, chosen greedily: each next one where those before explain least
(a pivoted Cholesky factorisation of the correlation matrix). With the points held there, a search
over the parameters alone is short and can keep its whole inverse Hessian; only the best few ends
are then refined with the points free to move. benchmarks/inducing.py compares with other choices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize as lbfgs

from lvgp import compute
from lvgp.errors import NumericalError
from lvgp.infer.draws import Draws, Optimization
from lvgp.infer.optimize import search, starting_points, warn_of_failures
from lvgp.kernels import KERNELS
from lvgp.model import Model, Rows, features
from lvgp.priors import Priors
from lvgp.progress import progress_bar
from lvgp.sparse import Inducing

_FIRST_EVALUATIONS = 150
_EVALUATIONS = 600
_TOLERANCE = 1.0
_ITERATIONS = 300
_MEMORY = 30
_REFINED = 2
_DIMS = 2


Choose = Callable[[Model, int, Any, Rows, Priors], Any]
"""(model, number of points, parameter vector, rows, priors) -> indices of the rows chosen."""


class End(NamedTuple):
    """Where a search ended."""

    vector: np.ndarray
    inducing: Inducing
    log_density: float
    """NaN when it failed."""
    evaluations: int
    """Of this search alone, without those it went on from."""
    converged: bool


def find_sparse_mode(
    model: Model,
    rows: Rows,
    priors: Priors,
    n_inducing: int,
    restarts: int,
    seed: int,
    progress: bool = False,
    workers: int | None = None,
    choose: Choose | None = None,
) -> Draws:
    """Return the best mode found over parameters and inducing points, as the only draw.

    Short searches from `restarts` points spread over the prior, longer ones from the best quarter
    with points chosen anew, then the best two with points free. VFE goes on from the parameters at
    FITC's modes with points chosen anew, which ended higher than with FITC's points.
    The result does not depend on `workers`, the number of searches run side by side. `choose` says
    at which rows the points start, by default `greedy_rows`.
    """
    begun = time.perf_counter()
    fitc = replace(model, approximation="fitc")
    quarter = max(_REFINED, restarts // 4)
    # points at all rows give the exact likelihood, and have nowhere better to go
    movable = n_inducing < int(rows.mask.sum())
    stages = 1 + int(movable) + (1 + int(movable) if model.approximation == "vfe" else 0)
    searches = restarts + min(quarter, restarts) + _REFINED * (stages - 1)
    evaluations = 0
    with (
        compute.one_blas_thread(),
        ThreadPoolExecutor(workers or compute.cores()) as pool,
        progress_bar("searching the mode", searches, progress) as advance,
    ):

        def each(step: Callable[..., End], model: Model, tasks: Iterable[tuple]) -> list[End]:
            nonlocal evaluations

            def one(task: tuple) -> End:
                with compute.scope():
                    end = step(model, rows, priors, *task)
                advance()
                return end

            ends = sorted(pool.map(one, tasks), key=lambda end: -_or_lowest(end.log_density))
            evaluations += sum(end.evaluations for end in ends)
            return ends

        def freed(model: Model, ends: list[End]) -> list[End]:
            return each(points_free, model, ((end,) for end in ends)) if movable else ends

        held = partial(points_held, n_inducing, choose or greedy_rows)
        starts = starting_points(fitc, priors, restarts, seed)
        first = each(held, fitc, ((start, _FIRST_EVALUATIONS) for start in starts))
        ends = each(held, fitc, ((end.vector, _EVALUATIONS) for end in first[:quarter]))
        ends = freed(fitc, ends[:_REFINED])
        if model.approximation == "vfe":
            ends = freed(model, each(held, model, ((end.vector, _EVALUATIONS) for end in ends)))
    warn_of_failures(sum(not np.isfinite(end.log_density) for end in first), restarts)
    return _as_draws(model, ends, evaluations, seed, time.perf_counter() - begun)


def find_points(
    model: Model,
    rows: Rows,
    priors: Priors,
    n_inducing: int,
    restarts: int,
    seed: int,
    progress: bool = False,
) -> Draws:
    """Return inducing points for full Bayes to keep, with a point where its chains can start.

    They are those of a mode in two latent dimensions at the most: weights of levels know no
    dimension, and a mode in more overfits, and its points with it. Further coordinates are zero.
    """
    dims = tuple(min(dim, _DIMS) for dim in model.latent_dims)
    plane = replace(model, latent_dims=dims)
    mode = find_sparse_mode(plane, rows, priors, n_inducing, restarts, seed, progress)
    return replace(mode, vectors=_widened(plane, model, mode.vectors[0])[None])


def _widened(plane: Model, model: Model, vector: Any) -> np.ndarray:
    """Return `vector`, of a model with fewer latent dimensions, with zeros for the others."""
    raw = plane.split(vector)[-1]
    wider = [
        np.pad(part, ((0, 0), (0, dim - part.shape[1]))).ravel()
        for part, dim in zip(raw, model.latent_dims, strict=True)
    ]
    return np.concatenate([vector[: plane.raw_start], *wider])


def _or_lowest(log_density: float) -> float:
    return log_density if np.isfinite(log_density) else -np.inf


def _as_draws(model: Model, ends: list[End], evaluations: int, seed: int, seconds: float) -> Draws:
    best = ends[0]
    if not np.isfinite(best.log_density):
        raise NumericalError(
            "the sparse approximation failed at all starts. Check y for outliers, use fewer "
            "inducing points, or raise noise_floor in Priors"
        )
    summary = Optimization(
        log_densities=tuple(end.log_density for end in ends),
        refined_log_densities=(),
        log_density=best.log_density,
        unconverged=sum(not end.converged for end in ends),
        evaluations=evaluations,
        seconds=seconds,
    )
    return Draws(
        method="mle" if model.plug_in_likelihood else "map",
        vectors=best.vector[None],
        log_densities=np.array([best.log_density]),
        seed=seed,
        inducing=best.inducing,
        optimization=summary,
    )


@partial(jax.jit, static_argnums=(0, 1), compiler_options=compute.ONE_THREAD)
def greedy_rows(model: Model, count: int, vector: Array, rows: Rows, priors: Priors) -> Array:
    """Return `count` rows, each the one whose f those before it leave most uncertain."""
    points = features(model.parameters(vector, priors), rows.x, rows.t, rows.remoteness)

    def choose(step: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        chosen, left, factor = state
        row = jnp.argmax(left).astype(jnp.int32)
        squared = jnp.sum((points - points[row]) ** 2, axis=1)
        column = KERNELS[model.kernel](squared)[0] - factor @ factor[row]
        column /= jnp.sqrt(jnp.maximum(left[row], 1e-12))
        # below all others, so that no row is chosen twice
        left = jnp.where(rows.mask > 0, left - column**2, -jnp.inf).at[row].set(-jnp.inf)
        return chosen.at[step].set(row), left, factor.at[:, step].set(column)

    start = jnp.where(rows.mask > 0, 1.0, -jnp.inf)
    empty = (jnp.zeros(count, jnp.int32), start, jnp.zeros((len(points), count)))
    return jax.lax.fori_loop(0, count, choose, empty)[0]


def at_rows(model: Model, rows: Rows, chosen: np.ndarray) -> Inducing:
    """Return inducing points that lie at the rows chosen."""
    levels = np.asarray(rows.t)[chosen]
    weights = tuple(np.eye(count)[levels[:, j]] for j, count in enumerate(model.n_levels))
    return Inducing(np.asarray(rows.x)[chosen], weights)


def points_held(
    n_inducing: int,
    choose: Choose,
    model: Model,
    rows: Rows,
    priors: Priors,
    start: np.ndarray,
    most: int,
) -> End:
    """Search over the parameters with inducing points at rows chosen for the start."""
    inducing = at_rows(model, rows, np.asarray(choose(model, n_inducing, start, rows, priors)))
    placed = rows._replace(inducing=jax.tree.map(jnp.asarray, inducing))
    end = search(model, start, placed, priors, _TOLERANCE, most)
    return End(
        np.asarray(end.point),
        inducing,
        -float(end.value),
        int(end.evaluations),
        bool(end.converged),
    )


def points_free(model: Model, rows: Rows, priors: Priors, start: End) -> End:
    """Search on with the inducing points free: coordinates within bounds, weights on the simplex.

    A point's weights are a / sum(a) with a in [0, 1], that of its heaviest level kept above 0.01.
    Levels without a row get no weight: the likelihood must not depend on their latents.
    """
    if not np.isfinite(start.log_density):
        return start
    x, weights = start.inducing
    relative = [part / part.max(axis=1, keepdims=True) for part in weights]
    point = np.concatenate([start.vector, x.ravel(), *(part.ravel() for part in relative)])
    bounds = _bounds(model, rows, x, relative)

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _joint(model, len(x), point, rows, priors)
        value, gradient = float(value), np.asarray(gradient)
        usable = np.isfinite(value) and np.isfinite(gradient).all()
        return (value, gradient) if usable else (1e300, np.zeros_like(gradient))

    found = lbfgs(
        objective,
        point,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": _ITERATIONS, "maxfun": 2 * _ITERATIONS, "maxcor": _MEMORY},
    )
    vector, inducing = split(model, len(x), found.x)
    if -found.fun < start.log_density:
        return start._replace(evaluations=int(found.nfev))
    inducing = jax.tree.map(np.asarray, inducing)
    value, evaluations = -float(found.fun), int(found.nfev)
    return End(np.asarray(vector), inducing, value, evaluations, bool(found.success))


def _bounds(model: Model, rows: Rows, x: np.ndarray, relative: list[np.ndarray]) -> np.ndarray:
    """Return low and high ends of each entry of a joint point."""
    real = np.asarray(rows.mask) > 0
    seen, levels = np.asarray(rows.x)[real], np.asarray(rows.t)[real]
    parts = [np.tile([-np.inf, np.inf], (model.size, 1))]
    # rows may lie outside the bounds that their column is scaled by
    ends = np.stack([seen.min(axis=0, initial=0.0), seen.max(axis=0, initial=1.0)], axis=1)
    parts.append(np.tile(ends, (len(x), 1)))
    for j, part in enumerate(relative):
        low = np.where(part == 1.0, 0.01, 0.0)
        high = np.broadcast_to(np.isin(np.arange(part.shape[1]), levels[:, j]), part.shape)
        parts.append(np.stack([low.ravel(), high.ravel().astype(float)], axis=1))
    return np.concatenate(parts)


def split(model: Model, count: int, point: Array) -> tuple[Array, Inducing]:
    """Return the parameter vector and the inducing points that a joint point stands for."""
    start = model.size + count * model.n_quantitative
    x = point[model.size : start].reshape(count, model.n_quantitative)
    weights = []
    for levels in model.n_levels:
        part = point[start : start + count * levels].reshape(count, levels)
        weights.append(part / part.sum(axis=1, keepdims=True))
        start += count * levels
    return point[: model.size], Inducing(x, tuple(weights))


@partial(jax.jit, static_argnums=(0, 1), compiler_options=compute.ONE_THREAD)
def _joint(
    model: Model, count: int, point: Array, rows: Rows, priors: Priors
) -> tuple[Array, Array]:
    """Return minus the log density, and its gradient, of parameters and inducing points."""

    def objective(point: Array) -> Array:
        vector, inducing = split(model, count, point)
        return -model.log_density(vector, rows._replace(inducing=inducing), priors)

    return jax.value_and_grad(objective)(point)
