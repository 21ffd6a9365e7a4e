"""What a study found: one tidy table, the paper's figures, and a summary in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lvgp.errors import InputError
from lvgp.files import write_text
from lvgp.study.cases import Study

_SCORES = {
    "rrmse": "RRMSE",
    "interval_score": "mean interval score",
    "coverage": "coverage of 95 % intervals",
    "crps": "CRPS",
    "nlpd": "negative log predictive density",
    "within_between": "within/between distance of levels",
    "procrustes": "Procrustes correlation with the truth",
    "fit_seconds": "training time, s",
}
_LOGARITHMIC = ("interval_score", "fit_seconds")
_COMPARED = ("rrmse", "interval_score", "crps")
_BOOTSTRAPS = 2000


def table(results: list[dict[str, Any]]) -> pd.DataFrame:
    """Return results as one tidy table: a row a task, in the order of the study."""
    rows = []
    for result in results:
        row = {name: value for name, value in result.items() if name != "coordinates"}
        versions = row.pop("versions", {})
        row["versions"] = " ".join(f"{name}={number}" for name, number in versions.items())
        rows.append(row)
    return pd.DataFrame(rows)


def summarise(study: Study, results: list[dict[str, Any]], output: Path) -> pd.DataFrame:
    """Write results.csv, summary.md and figures/ into `output`; return the table."""
    found = table(results)
    if found.empty:
        raise InputError(f"{output}: there are no results of study {study.name!r} yet")
    output.mkdir(parents=True, exist_ok=True)
    write_text(output / "results.csv", found.to_csv(index=False))
    write_text(output / "summary.md", summary(study, found))
    _figures(study, found, results, output / "figures")
    return found


def summary(study: Study, found: pd.DataFrame) -> str:
    """Return the Markdown page: means and sds, and full Bayes against each plug-in."""
    done = found[found["status"] == "done"]
    lines = [f"# {study.name}", "", study.title + ".", ""]
    lines.append(
        f"{len(done)} fits, seed {', '.join(map(str, sorted(found['seed'].unique())))}; mean and "
        "sd over replicates. Intervals are 95 % intervals for f."
    )
    failed = found[found["status"] != "done"]
    if len(failed):
        lines += ["", f"{len(failed)} fits failed; the first error: {failed.iloc[0]['error']}"]
    if len(done):
        lines += ["", *_means(done), "", *_comparisons(done)]
    return "\n".join(lines) + "\n"


def _means(done: pd.DataFrame) -> Iterator[str]:
    scores = [score for score in _SCORES if score in done]
    yield "| case | arm | n | " + " | ".join(_SCORES[score] for score in scores) + " | ok |"
    yield "|---" * (len(scores) + 4) + "|"
    for (case, arm), part in done.groupby(["case", "arm"], sort=False):
        cells = [f"{part[score].mean():.3g} ± {part[score].std():.2g}" for score in scores]
        ok = (part["verdict"] == "ok").sum()
        yield f"| {case} | {arm} | {len(part)} | {' | '.join(cells)} | {ok} |"


def _comparisons(done: pd.DataFrame) -> Iterator[str]:
    """Full Bayes against every other arm, replicate by replicate."""
    pairs = [
        (case, base, other)
        for case, part in done.groupby("case", sort=False)
        for base in dict.fromkeys(part.loc[part["method"] == "bayes", "arm"])
        for other in dict.fromkeys(part["arm"])
        if base != other and _comparable(part, base, other)
    ]
    if not pairs:
        return
    yield "Paired by replicate: how often full Bayes has the better (smaller) score, and the ratio"
    yield "of its mean score to the other's, with a 95 % bootstrap interval over replicates."
    yield ""
    yield "| case | full Bayes | against | score | won | ratio |"
    yield "|---|---|---|---|---|---|"
    for case, base, other in pairs:
        part = done[done["case"] == case]
        for score in _COMPARED:
            ours, theirs = (
                part[part["arm"] == arm].set_index("replicate")[score] for arm in (base, other)
            )
            ours, theirs = ours.align(theirs, join="inner")
            if not len(ours):
                continue
            low, high = bootstrap_ratio(ours.to_numpy(), theirs.to_numpy())
            won = int((ours < theirs).sum())
            yield (
                f"| {case} | {base} | {other} | {_SCORES[score]} | {won} of {len(ours)} "
                f"| {ours.mean() / theirs.mean():.3f} ({low:.3f} to {high:.3f}) |"
            )


def _comparable(part: pd.DataFrame, base: str, other: str) -> bool:
    """Compare full Bayes with plug-ins, and one full Bayes with another once only."""
    methods = part.drop_duplicates("arm").set_index("arm")["method"]
    return methods[other] != "bayes" or list(methods.index).index(base) < list(methods.index).index(
        other
    )


def bootstrap_ratio(ours: np.ndarray, theirs: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of mean(ours) / mean(theirs), replicates kept paired."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(ours), size=(_BOOTSTRAPS, len(ours)))
    ratios = ours[chosen].mean(axis=1) / theirs[chosen].mean(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def _figures(
    study: Study, found: pd.DataFrame, results: list[dict[str, Any]], folder: Path
) -> None:
    """Draw a figure for each score: a panel a case, a box an arm."""
    from lvgp import plots

    done = found[found["status"] == "done"]
    if done.empty:
        return
    folder.mkdir(exist_ok=True)
    cases = list(dict.fromkeys(done["case"]))
    for score in (score for score in _SCORES if score in done):
        log = score in _LOGARITHMIC and bool((done[score] > 0).all())
        nominal = 0.95 if score == "coverage" else None
        figure, axes = plots.panels(len(cases))
        for case, ax in zip(cases, axes, strict=True):
            part = done[done["case"] == case]
            plots.score_boxes(part, score, ax, by="arm", log=log, nominal=nominal)
            ax.set(title=case, ylabel=_SCORES[score])
            ax.tick_params(axis="x", rotation=30)
        plots.save(figure, folder / f"{score}.png")
    if study.maps:
        _map_figure(results, folder / "maps.png")


def _map_figure(results: list[dict[str, Any]], path: Path) -> None:
    """Draw the maps of the first replicate, a panel for each case and arm."""
    from lvgp import plots

    shown = [one for one in results if one["replicate"] == 0 and "coordinates" in one]
    if not shown:
        return
    arms = len({one["arm"] for one in shown})
    figure, axes = plots.panels(len(shown), arms, (4.2, 4.0))
    for one, ax in zip(shown, axes, strict=True):
        points = np.array(one["coordinates"])
        plots.level_points(points, [str(level + 1) for level in range(len(points))], ax)
        ax.set_title(f"{one['case']}, {one['arm']}")
    plots.save(figure, path)
