"""The page itself: findings and pictures in one HTML file that needs nothing else.

Everything is escaped by Jinja. The only scripts that run are Plotly and a few fixed lines that hand
it the figures; a content security policy names both by their hashes, so that no other script can
run and nothing is fetched, whatever a table's names contain.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from lvgp.files import write_text
from lvgp.options import checked_priors
from lvgp.regressor import LVGPRegressor
from lvgp.report import figures
from lvgp.report.findings import Findings, gather

_DRAW = """
for (const held of document.querySelectorAll("script[data-figure]")) {
  const figure = JSON.parse(held.textContent);
  Plotly.newPlot(held.dataset.figure, figure.data, figure.layout,
    {responsive: true, displaylogo: false});
}
"""
_PACKAGES = ("lvgp", "jax", "numpyro", "blackjax", "numpy", "scipy")
_MOST_SHOWN = 200


@dataclass(frozen=True)
class Figure:
    """One picture: its place in the page, its data, and what it shows in words and numbers."""

    name: str
    json: Markup
    alt: str
    table: pd.DataFrame


def write_report(model: LVGPRegressor, path: Path, progress: bool = False) -> None:
    """Write a page about a fitted model; nothing is written if anything fails on the way."""
    write_text(path, render(model, gather(model, progress)))


def render(model: LVGPRegressor, findings: Findings) -> str:
    """Return the page as text."""
    scripts = [get_plotlyjs(), _DRAW]
    template = files("lvgp.report").joinpath("page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"share": lambda value: f"{100 * value:.0f} %", "number": _number}
    return environment.from_string(template).render(
        model=model,
        findings=findings,
        columns=model.space_.described(),
        fitted=_figures(findings),
        effects=[
            (name, _effect(number, name, effect, findings.response))
            for number, (name, effect) in enumerate(findings.effects.items())
        ],
        maps=[(name, *_map(number, findings, name)) for number, name in enumerate(findings.maps)],
        code=_code(model),
        date=datetime.date.today().isoformat(),
        versions=", ".join(f"{package} {version(package)}" for package in _PACKAGES),
        policy=" ".join(_hash(script) for script in scripts),
        scripts=[Markup(script) for script in scripts],
        most_shown=_MOST_SHOWN,
    )


def _figure(name: str, drawn: Any, alt: str, table: pd.DataFrame) -> Figure:
    # "<" would let a level called </script> end the block
    text = drawn.to_json().replace("<", "\\u003c")
    return Figure(name, Markup(text), alt, table)


def _figures(findings: Findings) -> list[Figure]:
    rows = findings.left_out.drop(columns="pareto_k")
    inside = f"{findings.covered:.0%} of {len(rows)} rows lie inside their 95 % intervals."
    return [
        _figure(
            "observed-predicted",
            figures.observed_against_predicted(findings),
            f"Observed values against predictions from the other rows. {inside}",
            rows.set_axis(rows.index + 1),
        ),
        _figure(
            "calibration",
            figures.calibration(findings),
            f"Share of rows inside intervals against the coverage they claim. {inside}",
            findings.calibration.set_index("nominal"),
        ),
    ]


def _effect(number: int, name: Hashable, effect: pd.DataFrame, response: str) -> Figure:
    values, means = effect["value"].tolist(), effect["mean"].to_numpy()
    lowest, highest = int(means.argmin()), int(means.argmax())
    alt = (
        f"{response} averaged over the table against {name}: lowest, {means[lowest]:.4g}, at "
        f"{_number(values[lowest])}; highest, {means[highest]:.4g}, at {_number(values[highest])}."
    )
    drawn = figures.main_effect(name, effect, response)
    return _figure(f"effect-{number}", drawn, alt, effect.set_index("value"))


def _map(number: int, findings: Findings, name: Hashable) -> tuple[Figure, Figure]:
    latent = findings.maps[name]
    alt = (
        f"Latent map of the {len(latent.levels)} levels of {name}: levels that act alike lie "
        "close together. The numbers name the level most like each."
    )
    nearest = [latent.nearest(level, 1) for level in latent.levels]
    table = pd.DataFrame(
        {
            "observations": latent.observations,
            "most alike": [one.index[0] for one in nearest],
            "correlation": [one["correlation"].iloc[0] for one in nearest],
        }
    )
    heat = f"Correlations between the levels of {name}."
    return (
        _figure(f"map-{number}", figures.latent_map(latent), alt, table),
        _figure(f"heat-{number}", figures.correlation_map(latent), heat, latent.correlation),
    )


def _code(model: LVGPRegressor) -> str:
    """Return the lines of Python that make this fit again."""
    usual = LVGPRegressor().get_params(deep=False)
    chosen = model.get_params(deep=False) | {"random_state": model.seed_}
    chosen = {name: value for name, value in chosen.items() if value != usual[name]}
    for without_effect in ("progress", "priors"):
        chosen.pop(without_effect, None)
    texts = {name: repr(value) for name, value in chosen.items()}
    if model.priors_ != checked_priors("paper", model.approximation is not None):
        texts["priors"] = f"lvgp.{model.priors_!r}"
    lines = "".join(f"    {name}={text},\n" for name, text in texts.items())
    return (
        "import lvgp\n\n# table: a DataFrame with the columns named below\n"
        f"model = lvgp.LVGPRegressor(\n{lines})\n"
        f"model.fit(table[{model.space_.names!r}], table[{model.response_!r}])"
    )


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
