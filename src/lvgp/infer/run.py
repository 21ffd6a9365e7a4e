"""From method and options to draws: which inference runs, and from where it starts."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from lvgp import compute
from lvgp.errors import SlowFitWarning, warn
from lvgp.infer.draws import Draws
from lvgp.infer.inducing import find_points, find_sparse_mode
from lvgp.infer.optimize import find_mode, starting_points
from lvgp.infer.sample import Budget, sample
from lvgp.infer.variational import approximate
from lvgp.model import Model, Rows
from lvgp.priors import Priors

_LONG = 600.0
_ROWS_WORTH_TIMING = 300
_GRADIENTS = 150_000
"""What a fit by Markov chains needs, roughly, before R-hat and ESS are good enough."""
_GRADIENTS_A_DRAW = 60


@dataclass(frozen=True)
class Plan:
    """What is asked of inference."""

    method: str
    budget: Budget
    restarts: int
    n_inducing: int
    progress: bool = False


def infer(model: Model, rows: Rows, priors: Priors, plan: Plan, seed: int) -> Draws:
    """Return draws from the posterior, or its mode, as the plan's method has it."""
    begun, mode = time.perf_counter(), None
    if model.approximation is not None:
        find = find_points if plan.method == "bayes" else find_sparse_mode
        mode = find(model, rows, priors, plan.n_inducing, plan.restarts, seed, plan.progress)
        rows = rows._replace(inducing=jax.tree.map(jnp.asarray, mode.inducing))
    elif plan.method != "bayes":
        mode = find_mode(model, rows, priors, plan.restarts, seed, plan.progress)
    if plan.method == "bayes":
        _warn_if_slow(model, rows, priors, plan.budget, seed)
        return sample(
            model, rows, priors, plan.budget, seed, mode=mode, begun=begun, progress=plan.progress
        )
    assert mode is not None
    if plan.method == "vi":
        return approximate(model, rows, priors, mode, plan.progress)
    return mode


def _warn_if_slow(model: Model, rows: Rows, priors: Priors, budget: Budget, seed: int) -> None:
    """Say so when sampling will take long on this machine, and what to do instead."""
    if rows.mask.sum() < _ROWS_WORTH_TIMING:
        return
    start = starting_points(model, priors, 1, seed)[0]
    with compute.one_blas_thread():
        _gradient(model, start, rows, priors).block_until_ready()
        begun = time.perf_counter()
        _gradient(model, start, rows, priors).block_until_ready()
        took = time.perf_counter() - begun
    gradients = min(_GRADIENTS, budget.chains * (budget.warmup + budget.draws) * _GRADIENTS_A_DRAW)
    expected = took * gradients / min(compute.cores(), budget.chains)
    if expected <= _LONG:
        return
    what, instead = "exact model", 'approximation="vfe" or "fitc" takes far less; '
    if model.approximation:
        what, instead = "sparse model", "Fewer inducing points take less; "
    unlimited = math.isinf(budget.seconds)
    cut = "" if unlimited else f", and time_limit ends that after {budget.seconds:g} s"
    warn(
        f"sampling the {what} with {int(rows.mask.sum())} distinct rows until converged takes "
        f"about {expected / 60:.0f} minutes on this machine{cut}. {instead}"
        f'method="vi" or "map" is quicker too{"; time_limit sets an end" if unlimited else ""}',
        SlowFitWarning,
    )


@partial(jax.jit, static_argnums=0, compiler_options=compute.ONE_THREAD)
def _gradient(model: Model, vector: jax.Array, rows: Rows, priors: Priors) -> jax.Array:
    return jax.grad(model.log_density)(vector, rows, priors)
