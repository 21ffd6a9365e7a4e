"""Full Bayes: chains of draws from the one log density, until they are good enough."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lvgp import compute
from lvgp.errors import LVGPError, NumericalError
from lvgp.infer.chains import Chains, Record, joined, side_by_side
from lvgp.infer.convergence import (
    LEAST_ESS,
    MOST_R_HAT,
    Glance,
    glance,
    identified,
    layout,
    measure,
    reached,
    watched_rows,
)
from lvgp.infer.draws import Convergence, Draws, Sampling
from lvgp.infer.microcanonical import Microcanonical
from lvgp.infer.nuts import Nuts
from lvgp.infer.optimize import JITTERS, starting_points, warn_of_jitter
from lvgp.model import Model, Rows
from lvgp.priors import Priors
from lvgp.progress import SamplingBar, sampling_bar

FEWEST_DRAWS = 50
"""Draws of each chain below which an interrupted run is not worth keeping."""
_FIRST_CHECK = 150
_NEAR_GROWTH, _FAR_GROWTH = 1.3, 1.6
_WATCHED = 64
"""Quantities looked at between looks at all of them."""
_MEASURE = 10.0
"""How many times as long as a glance a measurement takes, at the most."""
_SPREAD = 0.1
"""Sd of the chains' starts around a mode, in every unconstrained coordinate."""


@dataclass(frozen=True)
class Budget:
    """What is asked of the chains, and when to give up."""

    sampler: str
    """ "microcanonical" or "nuts"."""
    chains: int
    warmup: int
    draws: int
    """Most draws of each chain."""
    target_accept: float
    seconds: float
    maps_too: bool
    """Whether the latent maps must converge as well as the predictions."""


def sample(
    model: Model,
    rows: Rows,
    priors: Priors,
    budget: Budget,
    seed: int,
    mode: Draws | None = None,
    begun: float | None = None,
    progress: bool = False,
    workers: int | None = None,
) -> Draws:
    """Return draws from the posterior, sampled until good enough or until the budget ends.

    Chains start at points spread over the prior, or around the mode where one is given. The time
    limit counts from `begun`, by default from now.
    The draws depend on `seed` and `budget` only, not on `workers`, the number of chains advanced
    side by side; unless the time limit or the user ends the run.
    """
    begun = time.perf_counter() if begun is None else begun
    candidates = _candidates(model, priors, 4 * budget.chains, seed, mode)
    rows, vectors = first_points(model, rows, priors, budget.chains, candidates)
    sampler = _sampler(model, rows, priors, budget, seed)
    with (
        # with more threads LAPACK rounds otherwise, and chains turn a last bit into other draws
        compute.one_blas_thread(),
        sampling_bar(budget.chains, budget.warmup, budget.draws, progress) as bar,
        side_by_side(sampler.begin(vectors), workers, begun + budget.seconds, bar.on_run) as chains,
    ):
        sampler.warm_up(chains, budget.warmup)
        warmed = time.perf_counter()
        record, found = _collected(model, rows, priors, budget, sampler, chains, bar)
    sampling = Sampling(
        sampler=budget.sampler,
        warmup=budget.warmup,
        acceptance=record.acceptance,
        steps=record.steps,
        divergent=record.divergent,
        energy=record.energy,
        step_sizes=tuple(record.step.mean(axis=1).tolist()),
        length=sampler.length,
        most_steps=sampler.most_steps,
        ended=chains.ended,
        convergence=found,
        gradients=bar.gradients,
        seconds=time.perf_counter() - begun,
        warmup_seconds=warmed - begun,
    )
    return Draws(
        method="bayes",
        vectors=record.point.vector.reshape(-1, model.size),
        log_densities=record.point.log_density.ravel(),
        seed=seed,
        jitter=float(rows.jitter),
        inducing=jax.tree.map(np.asarray, rows.inducing),
        optimization=None if mode is None else mode.optimization,
        sampling=sampling,
    )


def _sampler(
    model: Model, rows: Rows, priors: Priors, budget: Budget, seed: int
) -> Microcanonical | Nuts:
    seeds = np.random.SeedSequence([seed, 2]).generate_state(budget.chains)
    keys = [jax.random.key(int(chain_seed)) for chain_seed in seeds]
    if budget.sampler == "nuts":
        return Nuts(model, rows, priors, keys, budget.target_accept, budget.warmup)
    return Microcanonical(model, rows, priors, keys, budget.target_accept)


def _candidates(
    model: Model, priors: Priors, count: int, seed: int, mode: Draws | None
) -> np.ndarray:
    """Return points where chains may start."""
    if mode is None:
        return starting_points(model, priors, count, seed)
    spread = np.random.default_rng([seed, 5]).standard_normal((count, model.size))
    return mode.vectors[0] + _SPREAD * spread


def first_points(
    model: Model, rows: Rows, priors: Priors, chains: int, candidates: np.ndarray
) -> tuple[Rows, np.ndarray]:
    """Return a point of finite density for each chain.

    When the covariance is not positive definite at most of them, jitter is added to the noise.
    """
    for jitter in JITTERS:
        rows = rows._replace(jitter=jnp.asarray(jitter, dtype=rows.y.dtype))
        densities = np.array([_log_density(model, point, rows, priors) for point in candidates])
        usable = candidates[np.isfinite(densities)]
        if len(usable) >= chains:
            warn_of_jitter(jitter)
            return rows, usable[:chains]
    raise NumericalError(
        f"the covariance of the training rows is not positive definite where the chains should "
        f"start, even with {JITTERS[-1]:g} added to the noise variance. Remove near-duplicate "
        "rows, check y for outliers, or raise noise_floor in Priors"
    )


@partial(jax.jit, static_argnums=0)
def _log_density(model: Model, vector: jax.Array, rows: Rows, priors: Priors) -> jax.Array:
    return model.log_density(vector, rows, priors)


def _collected(
    model: Model,
    rows: Rows,
    priors: Priors,
    budget: Budget,
    sampler: Microcanonical | Nuts,
    chains: Chains,
    bar: SamplingBar,
) -> tuple[Record, Convergence]:
    """Sample in rounds until the quantities of interest are known well enough.

    When to look next depends on the draws alone, never on the clock.
    """
    places = layout(model, len(watched_rows(int(np.asarray(rows.mask).sum()))))
    interest = np.ones(places.size, bool) if budget.maps_too else ~places.for_maps
    watch = _Watch(np.flatnonzero(interest))
    records: list[Record] = []
    values: list[np.ndarray] = []
    found: Convergence | None = None
    made, goal = 0, min(_FIRST_CHECK, budget.draws)
    needed, deadline = goal, chains.deadline
    _refuse_if_too_short(made, chains, budget)
    while not chains.ended:
        bar.sampling(min(budget.draws, needed))
        record = chains.advance(sampler.advance, goal - made)
        if record is not None:
            records.append(record)
            made += record.acceptance.shape[1]
        _refuse_if_too_short(made, chains, budget)
        try:
            values = _identified_so_far(model, records, values, rows, priors)
            looking, watched = time.perf_counter(), len(watch.places)
            least, most = watch.look(values)
            looking = (time.perf_counter() - looking) / watched
            bar.status(least, most)
            good = _good(least, most)
            found = measure(np.concatenate(values, axis=1)) if good else None
        except KeyboardInterrupt:
            chains.ended = "interrupted"
            break
        if made >= budget.draws and not chains.ended:
            chains.ended = "draws"
        if found and reached(found, interest) and chains.ended != "interrupted":
            chains.ended = "converged"
        look, needed = _next_look(made, least, most)
        goal = min(budget.draws, look)
        # what measuring all quantities will take after the next round is part of the time limit
        chains.deadline = deadline - _MEASURE * looking * places.size * goal / made
    values = _identified_so_far(model, records, values, rows, priors)
    converged = found if chains.ended == "converged" else None
    return joined(records), converged or _measured(np.concatenate(values, axis=1), chains)


class _Watch:
    """Looks at growing numbers of draws; between looks at all quantities, at the worst only."""

    def __init__(self, interest: np.ndarray) -> None:
        self.places = self._interest = interest

    def look(self, values: list[np.ndarray]) -> tuple[float, float]:
        """Return the least ESS and the largest R-hat. If they are good, they are those of all."""
        seen = self._glance(values)
        if _good(*_extremes(seen)) and len(self.places) < len(self._interest):
            self.places = self._interest
            seen = self._glance(values)
        if not _good(*_extremes(seen)):
            with np.errstate(divide="ignore"):
                short, apart = LEAST_ESS / seen.ess, (seen.r_hat - 1.0) / (MOST_R_HAT - 1.0)
            # not a number is the worst, and sorted last
            self.places = self.places[np.argsort(np.maximum(short, apart))[-_WATCHED:]]
        return _extremes(seen)

    def _glance(self, values: list[np.ndarray]) -> Glance:
        return glance(np.concatenate([part[..., self.places] for part in values], axis=1))


def _extremes(seen: Glance) -> tuple[float, float]:
    return float(seen.ess.min()), float(seen.r_hat.max())


def _good(least_ess: float, most_r_hat: float) -> bool:
    return least_ess >= LEAST_ESS and most_r_hat < MOST_R_HAT


def _measured(values: np.ndarray, chains: Chains) -> Convergence:
    """Measure, even when the user interrupts: the draws are worth more than the wait."""
    try:
        return measure(values)
    except KeyboardInterrupt:
        chains.ended = "interrupted"
        return measure(values)


def _identified_so_far(
    model: Model, records: list[Record], values: list[np.ndarray], rows: Rows, priors: Priors
) -> list[np.ndarray]:
    """Return the identified quantities of all records; `values` are those already known."""
    new = []
    for point in (record.point for record in records[len(values) :]):
        pairs = zip(point.vector, point.log_density, strict=True)
        new.append(np.stack([identified(model, *pair, rows, priors) for pair in pairs]))
    return values + new


def _next_look(made: int, least_ess: float, most_r_hat: float) -> tuple[int, int]:
    """Return the number of draws to look at next, and that which seems to be needed in all.

    ESS grows, and R-hat - 1 shrinks, in proportion to the number of draws.
    """
    short, apart = LEAST_ESS / least_ess, (most_r_hat - 1.0) / (MOST_R_HAT - 1.0)
    # chains that never moved make both infinite
    needed = min(1000.0, max(1.07, short, apart))
    most = _NEAR_GROWTH if short < 3.0 else _FAR_GROWTH
    look, all_in_all = (
        int(np.ceil(made * growth / 10.0)) * 10 for growth in (min(most, needed), needed)
    )
    return look, all_in_all


def _refuse_if_too_short(made: int, chains: Chains, budget: Budget) -> None:
    """Raise when time or patience ended before there were draws worth keeping."""
    if made >= min(FEWEST_DRAWS, budget.draws) or not chains.ended:
        return
    if chains.ended == "interrupted":
        raise KeyboardInterrupt
    raise LVGPError(
        f"the time limit of {budget.seconds:g} s ended with {made} draws in each chain after "
        f"{chains.made - made} of {budget.warmup} warm-up transitions: too few to predict from. "
        'Raise time_limit, or use method="vi" or "map"'
    )
