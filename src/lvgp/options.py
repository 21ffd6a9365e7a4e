"""Checks of the options a user gives, each error naming the option, what came, what to give."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from lvgp.diagnostics import DOZENS_OF_LEVELS, roomier
from lvgp.errors import DataWarning, InputError, OptionWarning, SlowFitWarning, warn
from lvgp.infer import microcanonical, nuts
from lvgp.infer.sample import Budget
from lvgp.model import Model, groups
from lvgp.priors import Priors
from lvgp.space import Encoded, Space
from lvgp.table import column_keys

SAMPLERS = ("auto", "microcanonical", "nuts")
_WARMUP = {"microcanonical": 250, "nuts": 1000}
_TARGET_ACCEPT = {
    "microcanonical": microcanonical.TARGET_ACCEPT,
    "nuts": nuts.TARGET_ACCEPT,
}
_DRAWS = 10_000
_MOST_EXACT_ROWS = 20_000
_SPARSE_NOISE_FLOOR = 1e-4
_FEWEST_DRAWS = 10


def one_of(option: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Refuse a value that is not among those allowed."""
    if not any(value is known or (isinstance(value, str) and value == known) for known in allowed):
        raise InputError(
            f"{option}: expected one of {', '.join(map(repr, allowed))}, got {value!r}"
        )


def count(option: str, value: Any, least: int = 1) -> int:
    """Return a whole number of at least `least`, or refuse."""
    if not _is_count(value, least):
        expected = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise InputError(f"{option}: expected {expected}, got {value!r}")
    return int(value)


def _is_count(value: Any, least: int = 1) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def tail(coverage: Any) -> float:
    """Return the probability left out at each end of a central interval."""
    if not (_is_number(coverage) and 0 < coverage < 1):
        raise InputError(f"coverage: expected a number between 0 and 1, got {coverage!r}")
    return 0.5 * (1.0 - float(coverage))


def probabilities(quantiles: Any) -> np.ndarray:
    """Return the probabilities of the quantiles asked for, one at least."""
    try:
        values = np.atleast_1d(np.asarray(quantiles, dtype=float))
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if values.ndim != 1 or not len(values) or not ((values > 0) & (values < 1)).all():
        raise InputError(f"quantiles: expected numbers between 0 and 1, got {quantiles!r}")
    return values


def seed(random_state: Any) -> int:
    """Return the seed that `random_state` stands for; a fresh one for None."""
    if _is_count(random_state, 0):
        return int(random_state)
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    raise InputError(
        f"random_state: expected a non-negative integer, a RandomState or None, got "
        f"{random_state!r}"
    )


def checked_priors(priors: Any, is_sparse: bool = False) -> Priors:
    """Return the priors meant by a value or the name of a preset.

    Presets have a higher floor of the noise with a sparse approximation, as in the paper.
    """
    value = Priors.preset(priors) if isinstance(priors, str) else priors
    if isinstance(priors, str) and is_sparse:
        value = replace(value, noise_floor=max(value.noise_floor, _SPARSE_NOISE_FLOOR))
    if not isinstance(value, Priors):
        raise InputError(f"priors: expected a Priors value or a name, got {value!r}")
    return value.check()


def warn_of_many_levels(space: Space, model: Model, method: str, rows: int) -> None:
    """Say that a column has levels without data, or so many that chains will not agree soon."""
    for column in space.qualitative:
        if len(column.levels) > rows:
            empty = sum(count == 0 for count in column.counts)
            warn(
                f"column {column.name!r} has {len(column.levels)} levels and the table {rows} "
                f"rows: {empty} levels have no data, and predictions for them rest on the prior "
                "alone",
                DataWarning,
            )
    flat = {c.name for c, dim in zip(space.qualitative, model.latent_dims, strict=True) if dim <= 2}
    advised = roomier(space, model, DOZENS_OF_LEVELS)
    roomy = {name: dim for name, dim in advised.items() if name in flat}
    if roomy and method == "bayes":
        warn(
            "latent_dim: with dozens of levels on a plane chains often disagree for as long as "
            f"they run; latent_dim={roomy!r} (on the command line --latent-dim "
            f"{max(roomy.values())}) gives levels room to pass each other, and chains agree sooner",
            SlowFitWarning,
        )


def inducing(approximation: str | None, n_inducing: Any, training: Encoded) -> int:
    """Return the number of inducing points: as asked for, at most the number of distinct rows."""
    wanted = count("n_inducing", n_inducing)
    distinct = len(groups(training.x, training.t).first)
    if approximation is None and distinct > _MOST_EXACT_ROWS:
        raise InputError(
            f"X: {distinct} distinct rows are too many for the exact model, whose matrices would "
            f'take {8e-9 * distinct**2:.3g} GB each; use approximation="vfe" (on the command line '
            "--approximation vfe), or fewer rows"
        )
    if approximation is not None and wanted > distinct:
        warn(
            f"n_inducing: {wanted} inducing points are more than the {distinct} distinct rows, and "
            "lowered to that, where the likelihood is the exact model's; approximation=None "
            "computes it directly",
            DataWarning,
        )
    return min(wanted, distinct)


def budget(
    sampler: Any,
    chains: Any,
    warmup: Any,
    draws: Any,
    target_accept: Any,
    time_limit: Any,
    converge: Any,
    method: str = "bayes",
) -> Budget:
    """Return what is asked of the Markov chains, defaults filled in.

    For methods without chains: say so of options that only chains heed.
    """
    one_of("sampler", sampler, SAMPLERS)
    one_of("converge", converge, ("all", "predictions"))
    chosen = "microcanonical" if sampler == "auto" else sampler
    accept = _TARGET_ACCEPT[chosen] if target_accept is None else target_accept
    if not (_is_number(accept) and 0.5 <= accept < 1):
        raise InputError(f"target_accept: expected a number from 0.5 to below 1, got {accept!r}")
    seconds = math.inf if time_limit is None else time_limit
    if not (_is_number(seconds) and seconds > 0):
        raise InputError(f"time_limit: expected a positive number of seconds, got {seconds!r}")
    if method != "bayes":
        given = {
            "warmup": warmup,
            "draws": draws,
            "target_accept": target_accept,
            "time_limit": time_limit,
        }
        idle = [name for name, value in given.items() if value is not None]
        if idle:
            warn(f'{", ".join(idle)}: has an effect with method="bayes" only', OptionWarning)
    return Budget(
        sampler=chosen,
        chains=count("chains", chains),
        warmup=_WARMUP[chosen] if warmup is None else count("warmup", warmup, 20),
        draws=_DRAWS if draws is None else count("draws", draws, _FEWEST_DRAWS),
        target_accept=float(accept),
        seconds=float(seconds),
        maps_too=converge == "all",
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)


def latent_dims(wanted: Any, space: Space, table: pd.DataFrame, named: bool) -> tuple[int, ...]:
    """Return the dimensions of each categorical column's latent space, at most its levels - 1."""
    names = [column.name for column in space.qualitative]
    by_column: dict[Hashable, Any] = dict.fromkeys(names, 2)
    if isinstance(wanted, Mapping):
        by_column |= dict(column_keys(table, named, wanted, "latent_dim"))
        without = [name for name in by_column if name not in names]
        if without:
            raise InputError(
                f"latent_dim: column {without[0]!r} has no latents: only categories with three "
                f"levels or more do, here {names}"
            )
    else:
        by_column = dict.fromkeys(names, wanted)
    dims = []
    for column in space.qualitative:
        dim = by_column[column.name]
        if not _is_count(dim):
            raise InputError(
                f"latent_dim: column {column.name!r} needs a positive integer, got {dim!r}"
            )
        if dim > len(column.levels) - 1:
            warn(
                f"latent_dim: column {column.name!r} has {len(column.levels)} levels, which "
                f"span at most {len(column.levels) - 1} dimensions; {dim} is lowered to that",
                DataWarning,
            )
        dims.append(min(int(dim), len(column.levels) - 1))
    return tuple(dims)
