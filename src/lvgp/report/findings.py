"""What a report says of a fit, as plain tables; the pictures are drawn from these."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lvgp import metrics
from lvgp.effects import main_effects
from lvgp.export import hyperparameters
from lvgp.interpret import LatentMap
from lvgp.leave_one_out import leave_one_out
from lvgp.regressor import LVGPRegressor

_COVERAGES = np.linspace(0.05, 0.95, 19)


@dataclass(frozen=True)
class Findings:
    """Everything that goes into a report."""

    response: str
    left_out: pd.DataFrame
    """observed, mean, sd, lower, upper, inside; one row a training row."""
    rrmse: float
    covered: float
    """Share of rows inside their 95 % leave-one-out interval."""
    influential: int
    """Rows for which leave-one-out without fitting again cannot be trusted (Pareto k > 0.7)."""
    calibration: pd.DataFrame
    """nominal and observed coverage of the leave-one-out intervals."""
    maps: dict[Hashable, LatentMap]
    effects: dict[Hashable, pd.DataFrame]
    """For each column: value, mean, lower, upper of f averaged over the table."""
    parameters: pd.DataFrame
    """mean, lower, upper of each hyperparameter, by its name in words."""


def gather(model: LVGPRegressor, progress: bool = False) -> Findings:
    """Compute what a report shows."""
    posterior, space = model.posterior_, model.space_
    y = posterior.y_mean + posterior.y_scale * posterior.y
    found = leave_one_out(posterior, include_noise=True)
    table = found.table(0.025)
    table.insert(0, "observed", y)
    table["inside"] = (table["lower"] <= y) & (y <= table["upper"])
    reached = np.abs(found.reached(y) - 0.5)
    shares = [float((reached <= 0.5 * nominal).mean()) for nominal in _COVERAGES]
    return Findings(
        response=model.response_ or "response",
        left_out=table,
        rrmse=float(metrics.rrmse(y, table["mean"])),
        covered=float(table["inside"].mean()),
        influential=int((table["pareto_k"] > 0.7).sum()),
        calibration=pd.DataFrame({"nominal": _COVERAGES, "observed": shares}),
        maps={column.name: model.latent_map(column.name) for column in space.qualitative},
        effects=main_effects(posterior, space, progress=progress),
        parameters=hyperparameters(posterior, space),
    )
