"""Metropolis-adjusted microcanonical sampling, tuned over all chains together.

A trajectory moves at constant speed through the parameter space, its direction bent by the gradient
(isokinetic dynamics), and is accepted or rejected as a whole; the dynamics and the acceptance are
BlackJAX's. The tuning is ours, because BlackJAX's own fixes trajectories at two steps, where these
densities want tens of them (benchmarks/trajectories.py):

- the metric is diagonal, sqrt(var z / var gradient), the variances taken over all chains. The
  density does not change when the latents of a column are rotated, so the coordinates of one level
  share one entry;
- the step follows the mean acceptance of all chains;
- the length of trajectories grows or shrinks until a draw seems worth `_WORTH` independent draws
  in the median identified quantity.

Between trajectories, folds of the latent maps are tried (`folds.py`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.adjusted_mclmc import adjusted_mclmc_proposal
from blackjax.mcmc.integrators import IntegratorState, isokinetic_velocity_verlet
from blackjax.util import generate_unit_vector
from jax import Array

from lvgp import compute
from lvgp.infer.chains import Chains, Point, Record, joined, recorded
from lvgp.infer.convergence import glance, identified
from lvgp.infer.folds import try_folds
from lvgp.model import Model, Rows
from lvgp.priors import Priors

MOST_STEPS = 1000
TARGET_ACCEPT = 0.85
_WORTH = 0.4
_SHORTEST_STEP = 0.5
_NEARLY_ALL = 0.96
_FOLDS = 0.3


class Tuning(NamedTuple):
    """What all chains share."""

    step: float
    length: float
    """Mean length of a trajectory."""
    inverse_mass: np.ndarray
    """Diagonal of the inverse metric."""
    folds: float = _FOLDS
    """Folds tried for each step of a trajectory; one costs some two fifths of a step."""


@partial(jax.jit, static_argnums=0, compiler_options=compute.ONE_THREAD)
def start(model: Model, vector: Array, rows: Rows, priors: Priors) -> Point:
    """Return the chain's first point."""
    return Point(vector, *jax.value_and_grad(model.log_density)(vector, rows, priors))


@partial(jax.jit, static_argnums=0, compiler_options=compute.ONE_THREAD)
def advance(
    model: Model,
    point: Point,
    tuning: Tuning,
    key: Array,
    first: Array,
    count: Array,
    rows: Rows,
    priors: Priors,
) -> tuple[Point, Record]:
    """Make `count` transitions, the first of them number `first` of the chain with this key.

    The numbers of a chain depend on its key and the transition's number only, so that cutting a
    chain into runs changes nothing.
    """

    def density(vector: Array) -> Array:
        return model.log_density(vector, rows, priors)

    integrate = isokinetic_velocity_verlet(
        logdensity_fn=density, inverse_mass_matrix=tuning.inverse_mass
    )

    def transition(index: Array, point: Point) -> tuple[Point, Record]:
        keys = jax.random.split(jax.random.fold_in(key, first + index), 5)
        # a step that suits most of the density is too long for its narrow parts
        step = tuning.step * jax.random.uniform(keys[0], minval=_SHORTEST_STEP)
        wanted = jnp.ceil(2.0 * jax.random.uniform(keys[1]) * tuning.length / step)
        steps = jnp.clip(wanted, 1, MOST_STEPS).astype(jnp.int32)
        propose = adjusted_mclmc_proposal(
            lambda state, size, _length, _key: integrate(state, size), step, jnp.inf, steps
        )
        direction = generate_unit_vector(keys[2], point.vector)
        end, info, _ = propose(keys[3], IntegratorState(point.vector, direction, *point[1:]))
        attempts = jnp.ceil(tuning.folds * steps).astype(jnp.int32)
        vector, changed = try_folds(model, density, end.position, end.logdensity, keys[4], attempts)
        point = jax.lax.cond(
            changed,
            lambda: Point(vector, *jax.value_and_grad(density)(vector)),
            lambda: Point(end.position, end.logdensity, end.logdensity_grad),
        )
        # these dynamics keep no energy that E-BFMI could be computed from
        no_energy = jnp.asarray(jnp.nan)
        return point, Record(point, info.acceptance_rate, steps, step, info.is_divergent, no_energy)

    return recorded(transition, point, model.size, count)


def gradient_metric(model: Model, vectors: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Return sqrt(var z / var gradient) from draws (chains, draws, parameters) of both."""
    ratio = _spread(model, vectors) / np.maximum(_spread(model, gradients), 1e-12)
    return np.sqrt(np.clip(ratio, 1e-8, 1e8))


def _spread(model: Model, values: np.ndarray) -> np.ndarray:
    """Variance over chains and draws; for raw latents and their gradients, which rotation makes
    zero on average, the mean square over the coordinates of a level."""
    flat = values.reshape(-1, model.size)
    spread = flat.var(axis=0)
    start = model.raw_start
    for levels, dim in zip(model.n_levels, model.latent_dims, strict=True):
        block = slice(start, start + levels * dim)
        squares = (flat[:, block] ** 2).reshape(-1, levels, dim)
        spread[block] = np.repeat(squares.mean(axis=(0, 2)), dim)
        start += levels * dim
    return spread


class Microcanonical:
    """Metropolis-adjusted microcanonical chains; `warm_up` finds their tuning, then it is fixed."""

    most_steps = MOST_STEPS

    def __init__(
        self, model: Model, rows: Rows, priors: Priors, keys: list[Array], target_accept: float
    ) -> None:
        self._model, self._data, self._keys = model, (rows, priors), keys
        self._target_accept = target_accept
        self.tuning = Tuning(0.3, 0.5 * math.sqrt(model.size), np.ones(model.size))

    @property
    def length(self) -> float:
        """Mean length of a trajectory."""
        return self.tuning.length

    def begin(self, vectors: np.ndarray) -> list[Point]:
        """Return the first point of each chain."""
        return [start(self._model, vector, *self._data) for vector in vectors]

    def advance(self, point: Point, chain: int, first: int, count: int) -> tuple[Point, Record]:
        """Make `count` transitions of one chain with the tuning as it stands."""
        return advance(
            self._model, point, self.tuning, self._keys[chain], first, count, *self._data
        )

    def warm_up(self, chains: Chains, transitions: int) -> None:
        """Move the chains to where the mass is, and find step, metric and length on the way.

        In twenty parts. The step follows the acceptance after each, the metric is measured anew
        from the latest half of the transitions as these grow in number. Trajectories are short
        until there is a metric; then their length is tried and moved; the last parts settle the
        step.
        """
        history: list[Record] = []
        settled = []
        for part, end in enumerate(np.linspace(0, transitions, 21).round().astype(int)[1:], 1):
            record = chains.advance(self.advance, int(end) - chains.made)
            if chains.ended:
                return
            if record is None:
                continue
            history.append(record)
            self._move_step(record.acceptance, gain=2.0 if part <= 4 else 1.0)
            if part in (2, 3, 4, 6, 8, 12, 16):
                self._measure_metric(joined(history[-max(1, len(history) // 2) :]).point)
            if part in (4, 12):
                grown = (2.0 if part == 4 else 4.0) * math.sqrt(self._model.size)
                self.tuning = self.tuning._replace(length=grown)
            if part == 16:
                self._move_length(joined(history[-4:]).point)
            if part > 16:
                settled.append(math.log(self.tuning.step))
        if settled:
            self.tuning = self.tuning._replace(step=math.exp(np.mean(settled)))

    def _measure_metric(self, point: Point) -> None:
        metric = gradient_metric(self._model, point.vector, point.gradient)
        self.tuning = self.tuning._replace(inverse_mass=metric)

    def _move_step(self, acceptance: np.ndarray, gain: float) -> None:
        found = float(np.nan_to_num(acceptance).mean())
        # where nearly all is accepted the step is far too short, and the miss does not show how far
        miss = (found - self._target_accept) * (4.0 if found > _NEARLY_ALL else 1.0)
        self.tuning = self.tuning._replace(step=self.tuning.step * math.exp(gain * miss))

    def _move_length(self, point: Point) -> None:
        values = np.stack(
            [
                identified(self._model, vectors, densities, *self._data)
                for vectors, densities in zip(point.vector, point.log_density, strict=True)
            ]
        )
        if values.shape[1] < 8:
            return
        worth = float(np.median(glance(values).ess)) / values[..., 0].size
        # the root damps the noise of an estimate from few draws, which is too high for slow chains
        change = min(1.7, max(0.75, math.sqrt(_WORTH / worth)))
        self.tuning = self.tuning._replace(length=self.tuning.length * change)
