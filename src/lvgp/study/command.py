"""The commands `lvgp study list | run | figures`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from lvgp.console import ERRORS, plain_errors, words
from lvgp.errors import InputError
from lvgp.jobs import read_training, understood
from lvgp.study.builtin import STUDIES
from lvgp.study.cases import Arm, Case, ProblemCase, Study, TableCase
from lvgp.study.results import summarise
from lvgp.study.running import run, stored
from lvgp.table import check_response

study_app = typer.Typer(
    help="Numerical studies: the paper's, or the same protocol on a table of your own.\n\n"
    "Example: lvgp study run --table my.csv --target y",
    no_args_is_help=True,
)


@study_app.command("list")
def list_studies() -> None:
    """List the built-in studies.

    Example: lvgp study list
    """
    shown = Table("study", "cases", "arms", "replicates", "about")
    for one in STUDIES.values():
        arms = ", ".join(arm.name for arm in one.arms)
        shown.add_row(one.name, str(len(one.cases)), arms, str(one.replicates), one.title)
    Console().print(shown)


@study_app.command("run")
def run_study(
    name: Annotated[str | None, typer.Argument(help="A built-in study; not with --table.")] = None,
    problem: Annotated[list[str] | None, typer.Option(help="Only these test problems.")] = None,
    per_level: Annotated[
        list[int] | None, typer.Option(help="Observations a level, for test problems.")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Only these responses; the one of --table.")
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only arms with these methods.")] = None,
    draws: Annotated[
        int | None, typer.Option(min=10, help="Most draws of each chain; may end unconverged.")
    ] = None,
    replicates: Annotated[int | None, typer.Option(min=1, help="How many replicates.")] = None,
    train: Annotated[int | None, typer.Option(min=5, help="Training rows, with --table.")] = None,
    table: Annotated[Path | None, typer.Option(help="A CSV file of your own.")] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(help="With --table: columns that are categories, by commas.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="With --table: columns to leave out, by commas.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of designs and splits.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes side by side.")] = 1,
    backend: Annotated[str, typer.Option(help="loky (this machine) or dask.")] = "loky",
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    data: Annotated[Path | None, typer.Option(help="Where the tables are.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for results.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Run a study, or go on with one that was stopped.

    Example: lvgp study run engineering --problem borehole --per-level 2 --replicates 3

    Example: lvgp study run --table my.csv --target y --jobs 2
    """
    with plain_errors():
        of_tables = {"train": train, "categorical": categorical, "ignore": ignore}
        of_studies = {"NAME": name, "problem": problem, "per-level": per_level, "data": data}
        _refuse_together(table is not None, of_studies if table is not None else of_tables)
        if table is not None:
            chosen = _of_table(table, target, categorical, ignore, train)
        else:
            chosen = _narrowed(_named(name), problem, per_level, target)
        chosen = _with_arms(chosen, method, draws)
        chosen = replace(chosen, replicates=replicates or chosen.replicates)
        if backend not in ("loky", "dask") or (backend == "dask") != (scheduler is not None):
            raise InputError("--backend dask needs --scheduler ADDRESS, loky has none")
        folder = output or Path("studies") / chosen.name
        results = run(
            chosen, folder, seed=seed, jobs=jobs, scheduler=scheduler, data=data, progress=not quiet
        )
        _finish(chosen, results, folder, quiet)


@study_app.command("figures")
def figures(
    name: Annotated[str, typer.Argument(help="The study.")],
    output: Annotated[Path | None, typer.Option(help="Folder of its results.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Write table, summary and figures anew from the results on disk.

    Example: lvgp study figures engineering
    """
    with plain_errors():
        folder = output or Path("studies") / name
        chosen = STUDIES.get(name) or Study(name, name, (), ())
        _finish(chosen, stored(folder), folder, quiet)


def _finish(chosen: Study, results: list[dict[str, Any]], folder: Path, quiet: bool) -> None:
    summarise(chosen, results, folder)
    failed = sum(one["status"] != "done" for one in results)
    if not quiet:
        console = Console()
        console.print(Markdown((folder / "summary.md").read_text()))
        console.print(f"Wrote {folder}/results.csv, summary.md and figures/", highlight=False)
    if failed:
        ERRORS.print(f"lvgp: {failed} of {len(results)} fits failed; see {folder}/results.csv")
        raise typer.Exit(1)


def _refuse_together(with_table: bool, idle: dict[str, Any]) -> None:
    """Refuse options that would have no effect."""
    given = [option for option, value in idle.items() if value]
    if given:
        where = "not with --table" if with_table else "only with --table"
        raise InputError(f"{given[0] if given[0] == 'NAME' else '--' + given[0]}: goes {where}")


def _named(name: str | None) -> Study:
    if name is None or name not in STUDIES:
        known = ", ".join(STUDIES)
        raise InputError(f"expected a study ({known}) or --table FILE, got {name!r}")
    return STUDIES[name]


def _narrowed(
    chosen: Study,
    problem: list[str] | None,
    per_level: list[int] | None,
    target: list[str] | None,
) -> Study:
    """Keep the cases asked for; a number a level that the study lacks makes a new case."""
    cases: list[Case] = list(chosen.cases)
    kept = _chooser(chosen)
    if problem:
        kept("problem", problem, [getattr(case, "problem", None) for case in cases])
        cases = [case for case in cases if getattr(case, "problem", None) in problem]
    if per_level:
        names = dict.fromkeys(case.problem for case in cases if isinstance(case, ProblemCase))
        if not names:
            raise InputError(f"--per-level: study {chosen.name!r} has no test problems")
        cases = [ProblemCase(name, number) for name in names for number in per_level]
    if target:
        targets = [getattr(case, "target", None) for case in cases]
        kept("target", target, targets)
        cases = [case for case in cases if getattr(case, "target", None) in target]
    return replace(chosen, cases=tuple(cases))


def _chooser(chosen: Study) -> Callable[[str, list[str], list[Any]], None]:
    def check(option: str, wanted: list[str], known: list[Any]) -> None:
        unknown = [value for value in wanted if value not in known]
        if unknown:
            there = ", ".join(dict.fromkeys(str(value) for value in known if value)) or "none"
            raise InputError(
                f"--{option}: study {chosen.name!r} has no {unknown[0]!r}; it has {there}"
            )

    return check


def _with_arms(chosen: Study, method: list[str] | None, draws: int | None) -> Study:
    """Keep the arms asked for; full Bayes with at most `draws` draws a chain."""
    arms = chosen.arms
    if method:
        _chooser(chosen)("method", method, [arm.method for arm in arms])
        arms = tuple(arm for arm in arms if arm.method in method)
    if draws:
        if all(arm.method != "bayes" for arm in arms):
            raise InputError("--draws: goes with full Bayes, and no arm left is that")
        arms = tuple(
            replace(arm, options={**arm.options, "draws": draws}) if arm.method == "bayes" else arm
            for arm in arms
        )
    return replace(chosen, arms=arms)


def _of_table(
    path: Path,
    target: list[str] | None,
    categorical: list[str] | None,
    ignore: list[str] | None,
    train: int | None,
) -> Study:
    """Return the protocol of the studies on a user's own file: all methods, random splits."""
    if not target or len(target) != 1:
        raise InputError("--table needs one --target COLUMN")
    named = words(categorical)
    X, y = read_training(path, target[0], [], named, words(ignore))
    kinds, _ = understood(X, named)
    check_response(y, len(y))
    rows = train or max(5, min(100, len(y) // 2))
    case = TableCase(str(path.absolute()), target[0], rows, tuple(map(str, X)), tuple(kinds))
    arms = tuple(Arm(method, {"method": method}) for method in ("mle", "map", "vi", "bayes"))
    return Study("table", f"{path.name}: {target[0]}", (case,), arms, replicates=10)
