"""What the commands do with tables and models, between parsing and printing."""

from __future__ import annotations

import difflib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lvgp import metrics
from lvgp.console import ERRORS
from lvgp.errors import ConvergenceWarning, InputError, LVGPWarning
from lvgp.files import TABLES, read_table, refuse_stray_text
from lvgp.kernels import KERNELS
from lvgp.options import one_of
from lvgp.regressor import LVGPRegressor, load
from lvgp.space import Qualitative, Quantitative, Space, build_space


def read_training(
    path: Path, target: str, inputs: list[str], categorical: list[str], ignore: list[str]
) -> tuple[pd.DataFrame, pd.Series]:
    """Return the inputs and the response of a training table."""
    table = read_table(path)
    if inputs and ignore:
        raise InputError("--inputs and --ignore: give one of them, not both")
    chosen = {"target": [target], "inputs": inputs, "categorical": categorical, "ignore": ignore}
    for option, names in chosen.items():
        for name in names:
            refuse_unknown_column(f"{path}: --{option}", name, table)
    if target in inputs:
        raise InputError(f"--inputs: {target!r} is the target, and cannot be an input too")
    table = table[[*inputs, target]] if inputs else table.drop(columns=ignore)
    refuse_stray_text(path, table, categorical)
    if table.shape[1] < 2:
        raise InputError(f"{path}: no columns are left to predict {target!r} from")
    return table.drop(columns=target), table[target]


def refuse_unknown_column(place: str, name: Any, table: pd.DataFrame) -> None:
    """Refuse a name that no column has, with the one that was probably meant."""
    if name in table:
        return
    there = [str(column) for column in table.columns]
    lower = {column.lower(): column for column in there}
    near = difflib.get_close_matches(str(name).lower(), lower, 1)
    meant = f"did you mean {lower[near[0]]!r}? " if near else ""
    raise InputError(f"{place}: no column {name!r}; {meant}there are {', '.join(there)}")


def check_options(options: dict[str, Any]) -> None:
    """Refuse, before any work, unknown choices and options that others leave without effect."""
    one_of("method", options["method"], ("bayes", "vi", "map", "mle"))
    one_of("kernel", options["kernel"], tuple(KERNELS))
    one_of("approximation", options["approximation"], (None, "fitc", "vfe"))
    one_of("converge", options["converge"], ("all", "predictions"))
    if options["method"] != "bayes":
        idle = [name for name in ("draws", "time_limit") if options[name] is not None]
        idle += ["converge"] * (options["converge"] != "all")
        if idle:
            raise InputError(
                f"--{idle[0].replace('_', '-')}: has an effect with --method bayes only"
            )
    if options["approximation"] is None and options["n_inducing"] is not None:
        raise InputError("--n-inducing: has an effect with --approximation fitc or vfe only")


def understood(X: pd.DataFrame, categorical: list[str]) -> tuple[list[str], Space]:
    """Return the columns that are categories, and how all of them are understood."""
    kinds = [str(name) for name in X if name in categorical or not is_numeric_dtype(X[name])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        return kinds, build_space(X, kinds)


def fitted_model(
    X: pd.DataFrame,
    y: pd.Series,
    categorical: list[str],
    options: dict[str, Any],
    console: Console,
) -> LVGPRegressor:
    """Say how the columns are understood, and fit."""
    kinds, space = understood(X, categorical)
    shown = Table("column", "taken as", "values")
    for name, kind, values in space.described():
        shown.add_row(Text(name), kind, Text(values, overflow="ellipsis"))
    shown.add_row(Text(str(y.name)), "to be predicted", f"{len(y)} rows")
    console.print(shown)
    if options["method"] == "bayes":
        console.print(
            "Sampling until the result can be trusted; Ctrl-C ends it and keeps the draws."
        )
    model = LVGPRegressor(categorical=kinds, progress=not console.quiet, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LVGPWarning)
        model.fit(X, y)
    for one in caught:
        if not issubclass(one.category, ConvergenceWarning):
            console.print(f"note: {one.message}", style="yellow", markup=False)
    return model


def summarised(
    model: LVGPRegressor, y: np.ndarray, path: Path, console: Console, seconds: float
) -> dict[str, Any]:
    """Score the model by leave-one-out, print the figures and return them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        left_out = model.loo()
    verdict = model.diagnostics_.verdict
    figures = {
        "rows": len(y),
        "rrmse_left_out": metrics.rrmse(y, left_out["mean"]),
        "coverage_left_out": metrics.coverage(y, left_out["lower"], left_out["upper"]),
        "verdict": verdict,
        "seconds": round(seconds, 2),
        "model": str(path),
    }
    console.print(
        f"Predicting each row from the others: RRMSE {figures['rrmse_left_out']:.3f} (1: no "
        f"better than the average), {figures['coverage_left_out']:.0%} of rows inside their 95 % "
        "intervals."
    )
    if model.draws_.is_plug_in:
        console.print(
            "These figures flatter: the one estimate was made with the row that is left out."
        )
    console.print(f"Verdict: {model.diagnostics_}", markup=False, highlight=False)
    console.print(f"Wrote {path} after {seconds:.1f} s", highlight=False)
    following = "fit again as the verdict says" if verdict == "bad" else f"lvgp report {path}"
    console.print(f"Next: {following}", markup=False, highlight=False)
    return figures


def load_model(path: Path) -> LVGPRegressor:
    """Return a saved model; a table in its place is probably a mix-up."""
    if path.suffix.lower() in TABLES:
        raise InputError(f"{path}: is a table, not a model; the model comes first, then the table")
    return load(path)


def predictions(model: LVGPRegressor, path: Path, coverage: float, noise: bool) -> pd.DataFrame:
    """Return the rows of a table with their predictions beside them."""
    rows = read_table(path)
    for name in model.space_.names:
        refuse_unknown_column(f"{path}: the model needs {model.space_.names}", name, rows)
    # other columns of the file are carried along, not looked at
    known = _as_trained(model, rows[model.space_.names])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LVGPWarning)
        interval = model.predict_interval(known, coverage, include_noise=noise)
    notes = [*dict.fromkeys(str(one.message) for one in caught), *_cautions(model, known)]
    for note in notes:
        ERRORS.print(f"note: {note}", style="yellow", markup=False)
    names = ["mean", "lower", "upper"]
    if set(names) & set(rows.columns):
        interval = interval.rename(columns={name: f"predicted_{name}" for name in names})
    return pd.concat([rows, interval], axis=1)


def _as_trained(model: LVGPRegressor, rows: pd.DataFrame) -> pd.DataFrame:
    """Return levels as the kind they had in training: a file cannot tell 8 from '8'."""
    rows = rows.copy()
    for column in model.space_.columns:
        if not isinstance(column, Qualitative):
            continue
        known = {str(level): level for level in column.levels}
        values = [
            value if value in column.levels or pd.isna(value) else known.get(str(value), value)
            for value in rows[column.name]
        ]
        rows[column.name] = pd.Series(values, index=rows.index, dtype=object)
    return rows


def _cautions(model: LVGPRegressor, rows: pd.DataFrame) -> list[str]:
    """Say what makes these predictions doubtful."""
    found = []
    if not model.draws_.is_plug_in and model.diagnostics_.predictions != "ok":
        found.append(f"the model's verdict on predictions is {model.diagnostics_.predictions}")
    for column in model.space_.columns:
        if isinstance(column, Quantitative):
            outside = ~rows[column.name].between(column.low, column.high)
            if outside.any():
                found.append(
                    f"column {column.name!r}: {int(outside.sum())} rows lie outside {column.low:g} "
                    f"to {column.high:g}, where the model was fitted; it knows little there"
                )
    return found
