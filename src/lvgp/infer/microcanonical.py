"""Metropolis-adjusted microcanonical sampling, tuned over all chains together.

A trajectory moves at constant speed through the parameter space, its direction bent by the gradient
(isokinetic dynamics, BlackJAX's), and is accepted or rejected as a whole. The gradient may be in
single precision, the acceptance never is; BlackJAX's own proposal knows one density only. The
tuning is ours too, because BlackJAX's fixes trajectories at two steps, where these densities want
tens of them (benchmarks/trajectories.py):

- the metric is learned from the draws and gradients of all chains, one matrix for the
  hyperparameters and one for the levels of each column (`metric.py`);
- the step follows the mean acceptance of all chains;
- the length of trajectories grows or shrinks until a draw seems worth `_WORTH` independent draws
  in the median identified quantity;
- the precision is single for tables large enough to gain by it, as long as the gradient is nearly
  that in double precision at the transitions of warm-up (where noise is tiny, it is not).

A trajectory that fails clearly is followed by one with shorter steps (`_walked`). Before each
trajectory, folds of the latent maps are tried, of each column as many as warm-up finds worth their
cost (`folds.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.integrators import IntegratorState
from blackjax.util import generate_unit_vector
from jax import Array

from lvgp import compute
from lvgp.infer.chains import Chains, Point, Record, joined, recorded
from lvgp.infer.convergence import glance, identified, layout
from lvgp.infer.folds import share_of_change, spread_over, try_folds, wanted
from lvgp.infer.metric import Roots, isokinetic_steps, measured, stretched, unit
from lvgp.model import Model, Rows
from lvgp.priors import Priors

MOST_STEPS = 1000
TARGET_ACCEPT = 0.85
_WORTH = 0.4
_SHORTEST_STEP = 0.8
_CLEARLY = 2.0
"""Of the log ratio that a trajectory is accepted by: how far below zero it has failed clearly."""
_SHORTENED = 0.25
"""Steps of a second trajectory, relative, on average on the scale of logarithms."""
_LONGER = 2
"""How many times as many steps a second trajectory has."""
_NEARLY_ALL = 0.96
_DIVERGENT = 1000.0
_ROWS_WORTH_SINGLE = 90
_MOST_ERROR = 0.05
"""Of the gradient in single precision, relative; from 0.1 on acceptance suffers."""
_MOST_WRONG = 0.1
"""Share of transitions on the way from the start where the gradient may be further off."""
_NEARER = 0.002


class Tuning(NamedTuple):
    """What all chains share."""

    step: float
    length: float
    """Mean length of a trajectory."""
    roots: Roots
    """Of the metric: what a step of length one is in each direction."""
    folds: Any
    """Folds tried of each column for each step of a trajectory."""


@partial(jax.jit, static_argnums=(0, 1), compiler_options=compute.ONE_THREAD)
def start(model: Model, in_single: bool, vector: Array, rows: Rows, priors: Priors) -> Point:
    """Return the chain's first point."""
    value, gradient = jax.value_and_grad(model.log_density)(vector, rows, priors)
    if in_single:
        gradient = jax.grad(single_density(model, rows, priors))(vector)
    return Point(vector, value, gradient)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=compute.ONE_THREAD)
def advance(
    model: Model,
    in_single: bool,
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
    chain into runs changes nothing. With `in_single`, trajectories are bent by the gradient in
    single precision. Any field of directions gives a map that is undone by going back, with a known
    change of volume; accepted by the density in double precision, draws are as exact as otherwise.
    """

    def density(vector: Array) -> Array:
        return model.log_density(vector, rows, priors)

    guide = single_density(model, rows, priors) if in_single else density
    integrate = isokinetic_steps(model, guide, tuning.roots)

    def leg(point: Point, moved: Array, direction: Array, step: Array, steps: Array) -> _Leg:
        start, end, kinetic = _trajectory(integrate, point, moved, direction, step, steps)
        value = density(end.position) if in_single else end.logdensity
        gain = value - start.log_density - kinetic
        gain = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
        return _Leg(start, Point(end.position, value, end.logdensity_grad), end.momentum, gain)

    def transition(index: Array, point: Point) -> tuple[Point, Record]:
        keys = jax.random.split(jax.random.fold_in(key, first + index), 5)
        # trajectories of one step size could come back to where they were
        step = tuning.step * jax.random.uniform(keys[0], minval=_SHORTEST_STEP)
        wanted = jnp.ceil(2.0 * jax.random.uniform(keys[1]) * tuning.length / step)
        steps = jnp.clip(wanted, 1, MOST_STEPS).astype(jnp.int32)
        folded = try_folds(
            model, density, guide, point.vector, point.log_density, keys[4], tuning.folds * steps
        )
        point = Point(folded.vector, folded.log_density, point.gradient)
        direction = generate_unit_vector(keys[2], point.vector)
        return _walked(leg, point, folded.changed, direction, step, steps, keys[3])

    return recorded(transition, point, model.size, count)


class _Leg(NamedTuple):
    """A trajectory, and what it would be accepted by."""

    start: Point
    end: Point
    direction: Array
    """At the end."""
    gain: Array
    """Log of the ratio of densities, the change of volume included."""


def _walked(
    walk: Callable[[Point, Array, Array, Array, Array], _Leg],
    point: Point,
    moved: Array,
    direction: Array,
    step: Array,
    steps: Array,
    key: Array,
) -> tuple[Point, Record]:
    """Accept or reject a trajectory; where it fails clearly, try one with far shorter steps.

    Where the noise is tiny the density is narrow, and steps that suit the rest of it do not lead
    out. The second trajectory y starts as the first one did, from x, and is accepted with

        min(1, exp(gain(x to y)) q(y) / q(x)),    q = (1 - exp(gain)) [gain < -_CLEARLY],

    where q(x) is the chance to get to a second trajectory and q(y) that of getting to one on the
    way back: a third trajectory, with the first one's steps, is needed to know it (delayed
    rejection; Mira 2001, Modi, Barnett and Carpenter 2023).
    """
    chances = jax.random.uniform(key, (3,))
    first, second = jnp.log(chances[0]), jnp.log(chances[1])
    short = step * _SHORTENED ** (0.5 + chances[2])

    def more(state: tuple[Array, _Leg, Array]) -> Array:
        made, _, gains = state
        failed = (first >= gains[0]) & (gains[0] < -_CLEARLY)
        hopeful = second < gains[1] - _log_refused(gains[0])
        return (made == 0) | ((made == 1) & failed) | ((made == 2) & hopeful)

    def next_leg(state: tuple[Array, _Leg, Array]) -> tuple[Array, _Leg, Array]:
        made, tried, gains = state
        back = made == 2
        begin = jax.tree.map(lambda end, start: jnp.where(back, end, start), tried.end, tried.start)
        found = walk(
            begin,
            moved & (made == 0),
            jnp.where(back, -tried.direction, direction),
            jnp.where(made == 1, short, step),
            jnp.where(made == 1, _LONGER * steps, steps),
        )
        kept = jax.tree.map(lambda new, old: jnp.where(back, old, new), found, tried)
        return made + 1, kept, gains.at[made].set(found.gain)

    nothing = _Leg(point, point, direction, jnp.zeros_like(step))
    made, tried, gains = jax.lax.while_loop(more, next_leg, (jnp.asarray(0), nothing, jnp.zeros(3)))
    way_back = jnp.where(gains[2] < -_CLEARLY, _log_refused(gains[2]), -jnp.inf)
    accepted = (first < gains[0]) | (
        (made == 3) & (second < gains[1] - _log_refused(gains[0]) + way_back)
    )
    ended = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), tried.end, tried.start)
    divergent = (made > 1) & (gains[1] < -_DIVERGENT)
    # these dynamics keep no energy that E-BFMI could be computed from
    record = Record(
        ended,
        acceptance=jnp.exp(jnp.minimum(gains[0], 0.0)),
        steps=steps * jnp.asarray([0, 1, 1 + _LONGER, 2 + _LONGER], steps.dtype)[made],
        step=step,
        divergent=divergent,
        energy=jnp.asarray(jnp.nan),
        began=point.vector,
    )
    return ended, record


def _log_refused(gain: Array) -> Array:
    """Return the log of the chance that a trajectory of this gain, below zero, is rejected."""
    return jnp.log1p(-jnp.exp(jnp.minimum(gain, -_CLEARLY)))


def _trajectory(
    integrate: Callable[..., tuple[IntegratorState, Array]],
    point: Point,
    moved: Array,
    direction: Array,
    step: Array,
    steps: Array,
) -> tuple[Point, IntegratorState, Array]:
    """Return the start with its gradient, the end, and the change of kinetic energy.

    Where the start has `moved` since its gradient was computed, a step of length zero comes first.
    """
    Carry = tuple[Array, IntegratorState, Array]

    def one(index: Array, carry: Carry) -> Carry:
        gradient, state, kinetic = carry
        state, change = integrate(state, jnp.where(index == 0, 0.0, step))
        gradient = jnp.where(index == 0, state.logdensity_grad, gradient)
        return gradient, state, kinetic + change

    # a gradient that is not a number would outlast even a step of length zero
    gradient = jnp.where(moved, 0.0, point.gradient)
    state = IntegratorState(point.vector, direction, point.log_density, gradient)
    begin = (gradient, state, jnp.zeros_like(step))
    gradient, end, kinetic = jax.lax.fori_loop(jnp.where(moved, 0, 1), steps + 1, one, begin)
    return point._replace(gradient=gradient), end, kinetic


def single_density(model: Model, rows: Rows, priors: Priors) -> Callable[[Array], Array]:
    """Return the log density computed in single precision."""

    def lowered(part: Array) -> Array:
        part = jnp.asarray(part)
        return part.astype(jnp.float32) if part.dtype == jnp.float64 else part

    # squares of the usual distance to padding rows are beyond seven digits; twenty is far enough
    near = rows._replace(remoteness=rows.remoteness * _NEARER)
    low_rows, low_priors = jax.tree.map(lowered, (near, priors))

    def log_density(vector: Array) -> Array:
        value = model.log_density(vector.astype(jnp.float32), low_rows, low_priors)
        return value.astype(vector.dtype)

    return log_density


class Microcanonical:
    """Metropolis-adjusted microcanonical chains; `warm_up` finds their tuning, then it is fixed."""

    most_steps = MOST_STEPS

    def __init__(
        self, model: Model, rows: Rows, priors: Priors, keys: list[Array], target_accept: float
    ) -> None:
        self._model, self._data, self._keys = model, (rows, priors), keys
        self._target_accept = target_accept
        self.tuning = Tuning(
            0.3, 0.5 * math.sqrt(model.size), unit(model), spread_over(model.n_levels)
        )
        large = int(np.asarray(rows.mask).sum()) >= _ROWS_WORTH_SINGLE
        self.in_single = large and model.approximation is None

    @property
    def length(self) -> float:
        """Mean length of a trajectory."""
        return self.tuning.length

    def begin(self, vectors: np.ndarray) -> list[Point]:
        """Return the first point of each chain."""
        return [start(self._model, self.in_single, vector, *self._data) for vector in vectors]

    def advance(self, point: Point, chain: int, first: int, count: int) -> tuple[Point, Record]:
        """Make `count` transitions of one chain with the tuning as it stands."""
        key = self._keys[chain]
        return advance(
            self._model, self.in_single, point, self.tuning, key, first, count, *self._data
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
            most_wrong = _MOST_WRONG if part <= 4 else 0.0
            point = self._checked(chains, record.point, most_wrong)
            history.append(record._replace(point=point))
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
            # slow changes show only over many draws: all since the metric has been of some use
            self._choose_folds(joined(history[8:]))

    def _checked(self, chains: Chains, point: Point, most_wrong: float) -> Point:
        """Go on in double precision where single precision does not give the gradient.

        `most_wrong` is the share of points at which it need not. Returns the points, with the right
        gradients where they are wrong.
        """
        if not self.in_single:
            return point
        vectors, gradients = (
            part.reshape(-1, self._model.size) for part in (point.vector, point.gradient)
        )
        right = np.stack(
            [start(self._model, False, vector, *self._data).gradient for vector in vectors]
        )
        error, size = (
            np.linalg.norm(stretched(self._model, self.tuning.roots, part), axis=1)
            for part in (gradients - right, right)
        )
        # not a number is wrong too
        if np.mean(~(error <= _MOST_ERROR * size)) <= most_wrong:
            return point
        self.in_single = False
        chains.states = self.begin(np.stack([state.vector for state in chains.states]))
        return point._replace(gradient=right.reshape(point.gradient.shape))

    def _measure_metric(self, point: Point) -> None:
        roots = measured(self._model, point.vector, point.gradient, self.tuning.roots)
        self.tuning = self.tuning._replace(roots=roots)

    def _move_step(self, acceptance: np.ndarray, gain: float) -> None:
        found = float(np.nan_to_num(acceptance).mean())
        # where nearly all is accepted the step is far too short, and the miss does not show how far
        miss = (found - self._target_accept) * (4.0 if found > _NEARLY_ALL else 1.0)
        self.tuning = self.tuning._replace(step=self.tuning.step * math.exp(gain * miss))

    def _move_length(self, point: Point) -> None:
        if _too_few(point):
            return
        worth = _worth(self._identified(point))
        # the root damps the noise of an estimate from few draws, which is too high for slow chains
        change = min(1.7, max(0.75, math.sqrt(_WORTH / float(np.median(worth)))))
        self.tuning = self.tuning._replace(length=self.tuning.length * change)

    def _choose_folds(self, record: Record) -> None:
        """Set how many folds of each column are tried from what they did in warm-up."""
        if _too_few(record.point):
            return
        ended = self._identified(record.point)
        began = self._identified(record.point._replace(vector=record.began))
        worth = _worth(ended)
        by_folds = share_of_change(ended, began, worth)
        blocks = layout(self._model, 0).correlations
        columns = zip(blocks, self.tuning.folds, strict=True)
        folds = [wanted(worth[block], by_folds[block], tried) for block, tried in columns]
        self.tuning = self.tuning._replace(folds=np.array(folds))

    def _identified(self, point: Point) -> np.ndarray:
        pairs = zip(point.vector, point.log_density, strict=True)
        return np.stack([identified(self._model, *pair, *self._data) for pair in pairs])


def _too_few(point: Point) -> bool:
    """Whether there are too few draws to tell what one is worth."""
    return bool(point.log_density.shape[1] < 8)


def _worth(values: np.ndarray) -> np.ndarray:
    """Return how many independent draws a draw is worth, of each identified quantity."""
    return glance(values).ess / values[..., 0].size
