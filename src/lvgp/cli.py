"""The command line: parse, call, print."""

from __future__ import annotations

import json
import signal
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lvgp.console import ERRORS, plain_errors, words
from lvgp.demo import run_demo
from lvgp.files import check_output, write_table
from lvgp.jobs import (
    check_options,
    fitted_model,
    load_model,
    predictions,
    read_training,
    summarised,
)
from lvgp.options import one_of
from lvgp.report.page import write_report
from lvgp.study.command import study_app

# Typer carries its own Click and gives a name to this heir of its usage errors only
_USAGE_ERROR: Any = typer.BadParameter.__base__

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)
app.add_typer(study_app, name="study")


def _show_version(asked: bool) -> None:
    if asked:
        print(f"lvgp {version('lvgp')}")
        raise typer.Exit


@app.callback()
def common(
    asked: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Gaussian-process models for tables whose inputs are partly categories.

    Example: lvgp fit data.csv --target G -o model.lvgp, then lvgp report model.lvgp
    """


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")]


@app.command()
def fit(
    table: Annotated[Path, typer.Argument(help="CSV, TSV, Excel (.xlsx) or Parquet file.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the model goes.")] = Path(
        "model.lvgp"
    ),
    inputs: Annotated[
        list[str] | None, typer.Option(help="Columns to predict from, by commas; all by default.")
    ] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(help="Columns of numbers that are categories, by commas.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Columns to leave out, by commas.")
    ] = None,
    method: Annotated[str, typer.Option(help="bayes, vi, map or mle.")] = "bayes",
    approximation: Annotated[str | None, typer.Option(help="fitc or vfe: many rows.")] = None,
    n_inducing: Annotated[
        int | None, typer.Option(help="Inducing points of an approximation; 50 by default.")
    ] = None,
    kernel: Annotated[str, typer.Option(help="rbf, matern52 or matern32.")] = "rbf",
    latent_dim: Annotated[int, typer.Option(help="Dimensions of the latent maps.")] = 2,
    draws: Annotated[int | None, typer.Option(help="Most draws of each chain.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Most seconds of a fit by chains, all included.")
    ] = None,
    converge: Annotated[
        str, typer.Option(help="all, or predictions: do not wait for the latent maps.")
    ] = "all",
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table and save it.

    Example: lvgp fit data.csv --target G -o model.lvgp
    """
    with plain_errors():
        check_output(output, table)
        options: dict[str, Any] = {"method": method, "kernel": kernel, "latent_dim": latent_dim}
        options |= {"approximation": approximation, "n_inducing": n_inducing, "draws": draws}
        options |= {"time_limit": time_limit, "converge": converge}
        check_options(options)
        chosen = {name: value for name, value in options.items() if value is not None}
        talk = Console(quiet=quiet or as_json)
        named = words(categorical)
        X, y = read_training(table, target, words(inputs), named, words(ignore))
        begun = time.perf_counter()
        model = fitted_model(X, y, named, chosen | {"random_state": seed}, talk)
        model.save(output)
        seconds = time.perf_counter() - begun
        summary = summarised(model, y.to_numpy(float), output, talk, seconds)
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
        check_output(output, model, table, tables=True)
        loaded = load_model(model)
        loaded.set_params(unknown_levels=unknown_levels, progress=not talk.quiet)
        found = predictions(loaded, table, coverage, noise)
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
        check_output(output, model)
        loaded, talk = load_model(model), Console(quiet=quiet or as_json)
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


def main() -> None:
    """Run the command line; a wrong call is one line too."""
    # a request to end, like Ctrl-C, keeps what was drawn
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(app(standalone_mode=False))
    except _USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        help_with = context.command_path if context else "lvgp"
        message = f"{error.format_message()} See {help_with} --help"
        ERRORS.print(f"lvgp: {message}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
