"""MLE and MAP: the mode of the one log density, searched from several starts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lvgp import compute
from lvgp.errors import (
    NumericalError,
    NumericalWarning,
    warn,
)
from lvgp.infer.draws import Draws, Optimization
from lvgp.infer.quasi_newton import Minimum, minimize
from lvgp.model import Model, Rows
from lvgp.priors import Priors
from lvgp.progress import progress_bar

JITTERS = (0.0, 1e-8, 1e-6, 1e-4)
_ROUGH, _FINE = 1e-3, 1e-8


def find_mode(
    model: Model,
    rows: Rows,
    priors: Priors,
    restarts: int,
    seed: int,
    progress: bool = False,
    workers: int | None = None,
) -> Draws:
    """Return the best mode found as the only draw.

    Searches from `restarts` points spread over the prior. Then the latents of a few levels of the
    best mode are drawn anew and the search repeated from there, in rounds, for as long as that
    finds something better: with many levels the usual fault of a local mode is one level on the
    wrong side of the map. The best is then polished.

    The result does not depend on `workers`, the number of searches run side by side. When the
    covariance is not positive definite at any start, jitter is added to the noise and grows.
    """
    begun = time.perf_counter()
    starts = starting_points(model, priors, restarts, seed)
    for jitter in JITTERS:
        stabilised = rows._replace(jitter=jnp.asarray(jitter, dtype=rows.y.dtype))
        with _searching(model, stabilised, priors, progress, workers) as run:
            from_starts = run(starts, _ROUGH)
            if not np.isfinite(from_starts.log_densities).any():
                continue
            found = _improve(model, run, from_starts, seed)
            polished = run(found.vectors[[found.best]], _FINE)
        warn_of_jitter(jitter)
        warn_of_failures(int(np.isnan(from_starts.log_densities).sum()), restarts)
        return _as_draws(model, from_starts, found + polished, seed, jitter, begun)
    raise NumericalError(
        f"the covariance of the training rows is not positive definite at any of {restarts} "
        f"starts, even with {JITTERS[-1]:g} added to the noise variance. Remove near-duplicate "
        "rows, check y for outliers, or raise noise_floor in Priors"
    )


def warn_of_jitter(jitter: float) -> None:
    """Say that the noise variance was raised, if it was."""
    if jitter:
        warn(
            f"the covariance was not positive definite; {jitter:g} (on the scale of standardised "
            "y) was added to the noise variance. Near-duplicate rows, or a noise floor of zero, "
            "are the usual reason",
            NumericalWarning,
        )


def warn_of_failures(failed: int, restarts: int) -> None:
    """Say how many starts failed, unless none or all did."""
    if 0 < failed < restarts:
        warn(
            f"{failed} of {restarts} starts of the optimiser failed (the covariance is not "
            "positive definite there); the best of the others is used",
            NumericalWarning,
        )


def _as_draws(
    model: Model, from_starts: _Found, found: _Found, seed: int, jitter: float, begun: float
) -> Draws:
    best = found.best_log_density
    summary = Optimization(
        log_densities=tuple(from_starts.log_densities.tolist()),
        refined_log_densities=tuple(found.log_densities[len(from_starts.vectors) : -1].tolist()),
        log_density=best,
        unconverged=found.unconverged,
        evaluations=found.evaluations,
        seconds=time.perf_counter() - begun,
    )
    return Draws(
        method="mle" if model.plug_in_likelihood else "map",
        vectors=found.vectors[[found.best]],
        log_densities=np.array([best]),
        seed=seed,
        jitter=jitter,
        optimization=summary,
    )


def starting_points(model: Model, priors: Priors, restarts: int, seed: int) -> np.ndarray:
    """Return (restarts, parameters) points spread over the prior.

    log gamma starts at its mode and the noise variance between 0.01 and 0.5, well above what most
    tables have: the density is smoother there. On M2AX shear modulus that took a quarter of the
    evaluations that starting between 1e-5 and 1e-2 took, and ended in better modes.
    """
    rng = np.random.default_rng(seed)
    starts = rng.standard_normal((restarts, model.size))
    starts[:, 0] = priors.log_variance_mean + priors.log_variance_sd * starts[:, 0] / 2
    starts[:, 1] = rng.uniform(math.log(0.01), math.log(0.5), restarts)
    low, high = math.log(priors.lengthscale_low), math.log(priors.lengthscale_high)
    lengthscales = slice(2, 2 + model.n_quantitative)
    starts[:, lengthscales] = rng.uniform(low, high, (restarts, model.n_quantitative))
    starts[:, 2 + model.n_quantitative : model.raw_start] = 0.0
    return starts


@dataclass(frozen=True)
class _Found:
    """Where a batch of searches ended."""

    vectors: np.ndarray
    log_densities: np.ndarray
    """NaN where a search failed."""
    evaluations: int
    unconverged: int

    @property
    def best(self) -> int:
        return int(np.nanargmax(self.log_densities))

    @property
    def best_log_density(self) -> float:
        """NaN when every search failed."""
        finite = self.log_densities[np.isfinite(self.log_densities)]
        return float(finite.max()) if len(finite) else math.nan

    def __add__(self, other: _Found) -> _Found:
        return _Found(
            np.concatenate([self.vectors, other.vectors]),
            np.concatenate([self.log_densities, other.log_densities]),
            self.evaluations + other.evaluations,
            self.unconverged + other.unconverged,
        )


Run = Callable[[np.ndarray, float], _Found]


@contextmanager
def _searching(
    model: Model, rows: Rows, priors: Priors, progress: bool, workers: int | None
) -> Iterator[Run]:
    """Yield a function that searches from many starts at once, on all cores."""
    workers = workers or compute.cores()
    # LAPACK's own threads would fight with the searches over the cores
    with compute.one_blas_thread(), ThreadPoolExecutor(workers) as pool:

        def run(starts: np.ndarray, tolerance: float) -> _Found:
            with progress_bar("searching the mode", len(starts), progress) as advance:

                def one(start: np.ndarray) -> Minimum:
                    with compute.scope():
                        end = search(model, start, rows, priors, tolerance)
                        end = jax.tree.map(np.asarray, end)
                    advance()
                    return end

                ends = list(pool.map(one, starts))
            values = np.array([-float(end.value) for end in ends])
            return _Found(
                np.stack([end.point for end in ends]),
                values,
                sum(int(end.evaluations) for end in ends),
                sum(not end.converged for end in ends if np.isfinite(end.value)),
            )

        yield run


@partial(jax.jit, static_argnums=0, compiler_options=compute.ONE_THREAD)
def search(
    model: Model,
    start: jax.Array,
    rows: Rows,
    priors: Priors,
    tolerance: float,
    most_evaluations: int = 5000,
) -> Minimum:
    """Return the mode of the log density that a search from `start` ends at, negated."""

    def objective(vector: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(model.log_density)(vector, rows, priors)
        return -value, -gradient

    return minimize(objective, start, tolerance, most_evaluations)


def _improve(model: Model, run: Run, found: _Found, seed: int) -> _Found:
    """Search on from the best mode with the latents of a few levels drawn anew."""
    rng = np.random.default_rng([seed, 1])
    size = max(1, len(found.vectors) // 2)
    if not model.n_levels:
        return found
    better = True
    while better:
        best, before = found.vectors[found.best], found.best_log_density
        starts = np.stack([_perturbed(model, best, 1 + k % 3, rng) for k in range(size)])
        found += run(starts, _ROUGH)
        better = found.best_log_density > before + Optimization.TOLERANCE
    return found


def _perturbed(
    model: Model, vector: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Return `vector` with the latents of `count` levels of one column drawn anew."""
    column = int(rng.integers(len(model.n_levels)))
    sizes = [levels * dim for levels, dim in zip(model.n_levels, model.latent_dims, strict=True)]
    start = model.raw_start + sum(sizes[:column])
    vector = vector.copy()
    raw = vector[start : start + sizes[column]].reshape(model.n_levels[column], -1)
    chosen = rng.choice(len(raw), size=min(count, len(raw)), replace=False)
    raw[chosen] = rng.standard_normal((len(chosen), raw.shape[1])) * max(1.0, float(raw.std()))
    return vector
