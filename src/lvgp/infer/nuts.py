"""NumPyro's NUTS on the one log density, advanced run by run."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.infer.hmc import hmc

from lvgp import compute
from lvgp.infer.chains import Chains, Point, Record, recorded
from lvgp.model import Model, Rows
from lvgp.priors import Priors

TREE_DEPTH = 10
MOST_STEPS = 2**TREE_DEPTH - 1
TARGET_ACCEPT = 0.9


@partial(jax.jit, static_argnums=(0, 1), compiler_options=compute.ONE_THREAD)
def start(
    model: Model,
    warmup: int,
    vector: Array,
    key: Array,
    target_accept: Array,
    rows: Rows,
    priors: Priors,
) -> Any:
    """Return the chain's first state; its first `warmup` transitions will adapt step and metric."""
    return _kernel(model, warmup, vector, key, target_accept, rows, priors)[0]


@partial(jax.jit, static_argnums=(0, 1), compiler_options=compute.ONE_THREAD)
def advance(
    model: Model,
    warmup: int,
    state: Any,
    target_accept: Array,
    count: Array,
    rows: Rows,
    priors: Priors,
) -> tuple[Any, Record]:
    """Make `count` transitions; adaptation and random numbers are part of the state."""
    _, sample = _kernel(model, warmup, state.z, state.rng_key, target_accept, rows, priors)

    def transition(_: Array, before: Any) -> tuple[Any, Record]:
        state = sample(before)
        return state, Record(
            Point(state.z, -state.potential_energy, -state.z_grad),
            acceptance=state.accept_prob,
            steps=state.num_steps.astype("int32"),
            step=state.adapt_state.step_size,
            divergent=state.diverging,
            energy=state.energy,
            began=before.z,
        )

    return recorded(transition, state, model.size, count)


def _kernel(
    model: Model,
    warmup: int,
    vector: Array,
    key: Array,
    target_accept: Array,
    rows: Rows,
    priors: Priors,
) -> tuple[Any, Callable[[Any], Any]]:
    """Return a first state and the transition; the latter exists once a state has been made."""
    initial, sample = hmc(lambda vector: -model.log_density(vector, rows, priors), algo="NUTS")
    state = initial(
        vector,
        warmup,
        target_accept_prob=target_accept,
        max_tree_depth=TREE_DEPTH,
        rng_key=key,
    )
    return state, sample


class Nuts:
    """NUTS chains as NumPyro makes them: each adapts its own step and diagonal metric."""

    most_steps = MOST_STEPS
    length = math.nan

    def __init__(
        self,
        model: Model,
        rows: Rows,
        priors: Priors,
        keys: list[Array],
        target_accept: float,
        warmup: int,
    ) -> None:
        self._model, self._warmup, self._data, self._keys = model, warmup, (rows, priors), keys
        self._target_accept = jnp.asarray(target_accept)

    def begin(self, vectors: np.ndarray) -> list[Any]:
        """Return the first state of each chain."""
        return [
            start(self._model, self._warmup, vector, key, self._target_accept, *self._data)
            for vector, key in zip(vectors, self._keys, strict=True)
        ]

    def advance(self, state: Any, chain: int, first: int, count: int) -> tuple[Any, Record]:
        """Make `count` transitions of one chain."""
        return advance(self._model, self._warmup, state, self._target_accept, count, *self._data)

    def warm_up(self, chains: Chains, transitions: int) -> None:
        """Make the transitions during which NumPyro adapts."""
        chains.advance(self.advance, transitions)
