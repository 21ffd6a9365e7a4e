"""The command line: parse, call, print."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from pandas.api.types import is_numeric_dtype
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lvgp import metrics
from lvgp.console import ERRORS, plain_errors, words
from lvgp.demo import run_demo
from lvgp.errors import ConvergenceWarning, InputError, LVGPWarning
from lvgp.files import read_table, refuse_stray_text, write_table
from lvgp.options import one_of
from lvgp.regressor import LVGPRegressor, load
from lvgp.report.page import write_report
from lvgp.space import Space, build_space
from lvgp.study.command import study_app

app = typer.Typer(
    help="Gaussian-process models for tables whose inputs are partly categories.\n\n"
    "Example: lvgp fit data.csv --target G -o model.lvgp, then lvgp report model.lvgp",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)
app.add_typer(study_app, name="study")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")]


@app.command()
def fit(
    table: Annotated[Path, typer.Argument(help="CSV, TSV, Excel (.xlsx) or Parquet file.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the model goes.")] = Path(
        "model.lvgp"
    ),
    categorical: Annotated[
        str | None, typer.Option(help="Columns of numbers that are categories, by commas.")
    ] = None,
    ignore: Annotated[str | None, typer.Option(help="Columns to leave out, by commas.")] = None,
    method: Annotated[str, typer.Option(help="bayes, vi, map or mle.")] = "bayes",
    approximation: Annotated[str | None, typer.Option(help="fitc or vfe: many rows.")] = None,
    n_inducing: Annotated[
        int | None, typer.Option(help="Inducing points of an approximation; 50 by default.")
    ] = None,
    kernel: Annotated[str, typer.Option(help="rbf, matern52 or matern32.")] = "rbf",
    latent_dim: Annotated[int, typer.Option(help="Dimensions of the latent maps.")] = 2,
    draws: Annotated[int | None, typer.Option(help="Most draws of each chain.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Most seconds of sampling.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table and save it.

    Example: lvgp fit data.csv --target G -o model.lvgp
    """
    with plain_errors():
        X, y = _read_training(table, target, words(categorical), words(ignore))
        options = {
            "method": method,
            "approximation": approximation,
            "n_inducing": n_inducing,
            "kernel": kernel,
            "latent_dim": latent_dim,
            "draws": draws,
            "time_limit": time_limit,
        }
        talk = Console(quiet=quiet or as_json)
        _refuse_idle_options(options)
        options = {name: value for name, value in options.items() if value is not None}
        begun = time.perf_counter()
        model = fitted_model(
            X, y, words(categorical), options | {"random_state": seed}, talk, output
        )
        seconds = time.perf_counter() - begun
        summary = _summary(model, y.to_numpy(float), output, talk, seconds)
        if as_json:
            print(json.dumps(summary))


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model that `lvgp fit` wrote.")],
    table: Annotated[Path, typer.Argument(help="Rows to predict: CSV, TSV, .xlsx or Parquet.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where predictions go.")] = Path(
        "predictions.csv"
    ),
    coverage: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    noise: Annotated[bool, typer.Option(help="Intervals for new measurements, not f.")] = False,
    unknown_levels: Annotated[
        str, typer.Option(help="error, or prior: predict levels never seen, with wide intervals.")
    ] = "error",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict the rows of a table, with intervals.

    Example: lvgp predict model.lvgp new.csv -o predictions.csv
    """
    with plain_errors():
        one_of("unknown_levels", unknown_levels, ("error", "prior"))
        talk = Console(quiet=quiet or as_json)
        loaded = load(model).set_params(unknown_levels=unknown_levels, progress=not talk.quiet)
        rows = read_table(table)
        found = predictions(loaded, rows, coverage, noise)
        write_table(output, found)
        talk.print(f"Wrote {output}: {len(found)} rows", highlight=False)
        if as_json:
            print(json.dumps({"rows": len(found), "predictions": str(output)}))


@app.command()
def report(
    model: Annotated[Path, typer.Argument(help="A model that `lvgp fit` wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the page goes.")] = Path(
        "report.html"
    ),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write a page about a fitted model: one HTML file that opens in any browser.

    Example: lvgp report model.lvgp -o report.html
    """
    with plain_errors():
        loaded, talk = load(model), Console(quiet=quiet or as_json)
        write_report(loaded, output, progress=not talk.quiet)
        talk.print(f"Wrote {output}; open it in a browser", highlight=False)
        if as_json:
            told = {"verdict": loaded.diagnostics_.verdict, "report": str(output)}
            print(json.dumps(told))


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")] = Path(),
    force: Annotated[bool, typer.Option(help="Replace files of an earlier demo.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a built-in problem, compare with the truth, and write what a fit gives.

    Example: lvgp demo --output demo
    """
    with plain_errors():
        scores = run_demo(output, seed, force, Console(quiet=quiet or as_json))
        if as_json:
            print(json.dumps(scores))


def _read_training(
    path: Path, target: str, categorical: list[str], ignore: list[str]
) -> tuple[pd.DataFrame, pd.Series]:
    table = read_table(path)
    for option, names in (("target", [target]), ("categorical", categorical), ("ignore", ignore)):
        unknown = [name for name in names if name not in table]
        if unknown:
            there = ", ".join(map(str, table.columns))
            raise InputError(f"{path}: --{option}: no column {unknown[0]!r}; there are {there}")
    table = table.drop(columns=ignore)
    refuse_stray_text(path, table, categorical)
    if table.shape[1] < 2:
        raise InputError(f"{path}: no columns are left to predict {target!r} from")
    return table.drop(columns=target), table[target]


def _print_columns(space: Space, console: Console) -> None:
    shown = Table("column", "taken as", "values")
    for name, kind, values in space.described():
        shown.add_row(Text(name), kind, Text(values, overflow="ellipsis"))
    console.print(shown)


def fitted_model(
    X: pd.DataFrame,
    y: pd.Series,
    categorical: list[str],
    options: dict[str, Any],
    console: Console,
    output: Path,
) -> LVGPRegressor:
    """Say how the columns are understood, fit, and save."""
    kinds = [name for name in X if name in categorical or not is_numeric_dtype(X[name])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        _print_columns(build_space(X, kinds), console)
    model = LVGPRegressor(categorical=kinds, progress=not console.quiet, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LVGPWarning)
        model.fit(X, y)
    model.save(output)
    for one in caught:
        if not issubclass(one.category, ConvergenceWarning):
            console.print(f"note: {one.message}", style="yellow", markup=False)
    return model


def _refuse_idle_options(options: dict[str, Any]) -> None:
    """Refuse options that the others leave without effect."""
    if options["method"] != "bayes":
        idle = [name for name in ("draws", "time_limit") if options[name] is not None]
        if idle:
            raise InputError(
                f"--{idle[0].replace('_', '-')}: has an effect with --method bayes only"
            )
    if options["approximation"] is None and options["n_inducing"] is not None:
        raise InputError("--n-inducing: has an effect with --approximation fitc or vfe only")


def _summary(
    model: LVGPRegressor, y: np.ndarray, path: Path, console: Console, seconds: float
) -> dict[str, Any]:
    """Score the model by leave-one-out, print the figures and return them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        left_out = model.loo()
    figures = {
        "rows": len(y),
        "rrmse_left_out": metrics.rrmse(y, left_out["mean"]),
        "coverage_left_out": metrics.coverage(y, left_out["lower"], left_out["upper"]),
        "verdict": model.diagnostics_.verdict,
        "seconds": round(seconds, 2),
        "model": str(path),
    }
    console.print(
        f"Predicting each row from the others: RRMSE {figures['rrmse_left_out']:.3f} (1: no "
        f"better than the average), {figures['coverage_left_out']:.0%} of rows inside their 95 % "
        "intervals."
    )
    console.print(f"Verdict: {model.diagnostics_}", markup=False, highlight=False)
    console.print(f"Wrote {path} after {seconds:.1f} s", highlight=False)
    console.print(f"Next: lvgp report {path}", markup=False, highlight=False)
    return figures


def predictions(
    model: LVGPRegressor, rows: pd.DataFrame, coverage: float, noise: bool
) -> pd.DataFrame:
    """Return the rows with their predictions beside them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LVGPWarning)
        # other columns of the file are carried along, not looked at
        known = [name for name in model.space_.names if name in rows]
        interval = model.predict_interval(rows[known], coverage, include_noise=noise)
    for message in dict.fromkeys(str(one.message) for one in caught):
        ERRORS.print(f"note: {message}", style="yellow", markup=False)
    names = ["mean", "lower", "upper"]
    if set(names) & set(rows.columns):
        interval = interval.rename(columns={name: f"predicted_{name}" for name in names})
    return pd.concat([rows, interval], axis=1)


def main() -> None:
    """Run the command line."""
    sys.exit(app())
