"""Main effects: how the response changes with one column, averaged over the table.

The effect of column c at value v is the average of f over rows of the training table with c set to
v (partial dependence). Given a draw of the parameters this average is normal, its variance the mean
of the rows' joint covariance; over the draws it is a mixture, whose quantiles are exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lvgp.mixture import mixture_moments, mixture_quantile
from lvgp.posterior import Posterior
from lvgp.space import Encoded, Qualitative, Quantitative, Space

_MOST_ROWS = 32
_POINTS = 25


def main_effects(
    posterior: Posterior,
    space: Space,
    names: Sequence[Hashable] | None = None,
    coverage: float = 0.95,
    progress: bool = False,
) -> dict[Hashable, pd.DataFrame]:
    """Return for each column (of `names`) a table of value, mean, lower, upper.

    Values are the levels of a category, or 25 points across the range of a number. Averages are
    over up to 32 training rows, evenly spaced in the table. Columns with one value have no effect.
    """
    columns = [
        column
        for column in space.columns
        if isinstance(column, Quantitative | Qualitative)
        and (names is None or column.name in names)
    ]
    if not columns:
        return {}
    count = len(posterior.y)
    rows = np.unique(np.linspace(0, count - 1, min(_MOST_ROWS, count)).astype(int))
    sets = [_with_values(posterior.training, space, column, rows) for column in columns]
    everything = Encoded(
        np.concatenate([one.x for one in sets]), np.concatenate([one.t for one in sets])
    )
    found = posterior.averages(everything, len(rows), progress=progress)
    mean, _ = mixture_moments(found)
    tail = 0.5 * (1.0 - coverage)
    lower, upper = (mixture_quantile(found, probability) for probability in (tail, 1.0 - tail))
    table = pd.DataFrame({"mean": mean, "lower": lower, "upper": upper})
    ends = np.cumsum([len(_values(column)) for column in columns])[:-1]
    parts = np.split(np.arange(len(table)), ends)
    effects = {}
    for column, part in zip(columns, parts, strict=True):
        effect = table.iloc[part].reset_index(drop=True)
        effect.insert(0, "value", pd.Series(_values(column)))
        effects[column.name] = effect
    return effects


def _values(column: Quantitative | Qualitative) -> list[Any]:
    if isinstance(column, Qualitative):
        return list(column.levels)
    return np.linspace(column.low, column.high, _POINTS).tolist()


def _with_values(
    training: Encoded, space: Space, column: Quantitative | Qualitative, rows: np.ndarray
) -> Encoded:
    """Return the chosen rows once for each value of a column, with that value in the column."""
    count = len(_values(column))
    x, t = (np.tile(part[rows], (count, 1)) for part in (training.x, training.t))
    if column in space.quantitative:
        scaled = np.linspace(0.0, 1.0, count)
        x[:, space.quantitative.index(column)] = np.repeat(scaled, len(rows))
    else:
        codes = np.repeat(np.arange(count), len(rows))
        t[:, [other.name for other in space.qualitative].index(column.name)] = codes
    return Encoded(x, t)
