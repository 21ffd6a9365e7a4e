"""Chains side by side on the cores: advancing them, within a budget, until stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lvgp import compute

State = Any

RUN = 32
"""Most transitions in one call of a compiled program."""
_SECONDS_A_RUN = 0.5


class Point(NamedTuple):
    """Where a chain is."""

    vector: Any
    log_density: Any
    gradient: Any


class Record(NamedTuple):
    """What happened at each transition of a run."""

    point: Point
    acceptance: Any
    steps: Any
    """Steps of all trajectories that were tried, each an evaluation of the gradient."""
    step: Any
    divergent: Any
    energy: Any
    """NaN where the dynamics keep none."""
    began: Any
    """Where the trajectory began: where the last one ended, or where folds led from there."""


Advance = Callable[[State, int, int, int], tuple[State, Record]]
"""(state, chain, number of the first transition, count) -> (state, record of the run)."""


def recorded(
    transition: Callable[[Array, State], tuple[State, Record]],
    state: State,
    parameters: int,
    count: Array,
) -> tuple[State, Record]:
    """Make `count` transitions inside a compiled program; return their records, padded to RUN."""
    point = Point(jnp.zeros((RUN, parameters)), jnp.zeros(RUN), jnp.zeros((RUN, parameters)))
    empty = Record(
        point,
        acceptance=jnp.zeros(RUN),
        steps=jnp.zeros(RUN, jnp.int32),
        step=jnp.zeros(RUN),
        divergent=jnp.zeros(RUN, bool),
        energy=jnp.zeros(RUN),
        began=jnp.zeros((RUN, parameters)),
    )

    def one(index: Array, carry: tuple[State, Record]) -> tuple[State, Record]:
        state, made = transition(index, carry[0])
        kept = jax.tree.map(lambda kept, new: kept.at[index].set(new), carry[1], made)
        return state, kept

    return jax.lax.fori_loop(0, count, one, (state, empty))


@dataclass
class Chains:
    """The state of all chains, and the means of advancing them.

    What the chains do is a function of their states and the transitions' numbers only: neither the
    number of cores nor the lengths of the runs changes a draw.
    """

    states: list[State]
    pool: ThreadPoolExecutor
    workers: int
    deadline: float
    on_run: Callable[[int, Record], None]
    """Called after each run, from its thread, with the number of transitions and their record."""
    made: int = 0
    """Transitions made by every chain so far."""
    sizes: list[int] = field(default_factory=list)
    """Transitions in the next run of each chain."""
    ended: str = ""
    """Why there will be no more: "interrupted", "time", or empty while there can be."""

    def advance(self, step: Advance, count: int) -> Record | None:
        """Make up to `count` transitions of every chain; return records (chains, made, ...).

        Fewer than `count` when the time runs out or the user interrupts; then `ended` says so.
        """
        stop = threading.Event()
        # since the last round trajectories may have become longer
        self.sizes = [max(1, size // 4) for size in self.sizes or [1] * len(self.states)]
        turns = _Turns([[] for _ in self.states], self.sizes)
        futures = [
            self.pool.submit(self._work, step, count, stop, turns)
            for _ in range(min(self.workers, len(self.states)))
        ]
        try:
            self._wait(futures)
        except KeyboardInterrupt:
            self.ended = "interrupted"
        finally:
            stop.set()
            wait(futures)
        kept = turns.kept
        least = min(turns.made)
        if least < count and not self.ended:
            self.ended = "time"
        self.made += least
        if least == 0:
            return None
        joined = [
            jax.tree.map(lambda *parts: np.concatenate(parts)[:least], *runs) for runs in kept
        ]
        return jax.tree.map(lambda *parts: np.stack(parts), *joined)

    def _wait(self, futures: list[Future[None]]) -> None:
        # waiting in short spells lets an interrupt from the keyboard through on every platform
        pending = set(futures)
        while pending:
            finished, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
            for future in finished:
                future.result()

    def _work(self, step: Advance, count: int, stop: threading.Event, turns: _Turns) -> None:
        """Advance chains run by run, always the one furthest behind, until all have made `count`.

        Runs are short enough to stop soon when asked. Chains stay level, so that little is lost
        where time ends a round and there are more chains than workers.
        """
        with compute.scope():
            while not stop.is_set() and time.perf_counter() < self.deadline:
                chain = turns.take(count)
                if chain is None:
                    return
                made = turns.made[chain]
                run = min(turns.sizes[chain], count - made, RUN)
                begun = time.perf_counter()
                state, record = step(self.states[chain], chain, self.made + made, run)
                record = jax.tree.map(lambda part: np.asarray(part)[:run], record)  # noqa: B023
                took = (time.perf_counter() - begun) / run
                self.states[chain] = state
                turns.put_back(chain, record, run, int(_SECONDS_A_RUN / max(took, 1e-6)))
                self.on_run(run, record)


class _Turns:
    """Who goes next in a round: of the chains not at work, the one furthest behind."""

    def __init__(self, kept: list[list[Record]], sizes: list[int]) -> None:
        self.kept, self.sizes = kept, sizes
        self.made = [0] * len(kept)
        self._idle = set(range(len(kept)))
        self._lock = threading.Lock()

    def take(self, count: int) -> int | None:
        """Return a chain that has made fewer than `count` transitions; None when none is free."""
        with self._lock:
            behind = [chain for chain in sorted(self._idle) if self.made[chain] < count]
            if not behind:
                return None
            chain = min(behind, key=lambda chain: self.made[chain])
            self._idle.remove(chain)
            return chain

    def put_back(self, chain: int, record: Record, run: int, most: int) -> None:
        """Keep what the chain made; its next run is twice as long, or `most` transitions."""
        with self._lock:
            self.kept[chain].append(record)
            self.made[chain] += run
            self.sizes[chain] = max(1, min(2 * self.sizes[chain], most))
            self._idle.add(chain)


@contextmanager
def side_by_side(
    states: list[State],
    workers: int | None,
    deadline: float,
    on_run: Callable[[int, Record], None],
) -> Iterator[Chains]:
    """Yield chains that advance on `workers` threads (by default all cores)."""
    # LAPACK's own threads would fight with the chains over the cores
    workers = workers or compute.cores()
    with compute.one_blas_thread(), ThreadPoolExecutor(workers) as pool:
        yield Chains(states, pool, workers, deadline, on_run)


def joined(records: list[Record]) -> Record:
    """Return records (chains, transitions, ...) one after the other."""
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *records)
