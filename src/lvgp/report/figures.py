"""The pictures of a report: the only importer of Plotly.

Names of columns and levels come from users' files. Plotly reads a few HTML tags in texts, so every
name goes through `plain_text`, which makes it show as it is written.
"""

from __future__ import annotations

import html
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from lvgp.interpret import LatentMap
from lvgp.report.findings import Findings

_BLUE, _ORANGE, _GREY, _DARK = "#0072B2", "#B34700", "#767676", "#1a1a1a"
_LONGEST = 40
_NEAREST = 4
_MOST_NUMBERED = 16


def plain_text(name: Any) -> str:
    """Return a name as text that Plotly shows as written, shortened when it is long."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(name))
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 1]}…"
    return html.escape(text, quote=False)


def observed_against_predicted(findings: Findings) -> go.Figure:
    """Draw each row's observation against its prediction from the other rows."""
    table = findings.left_out
    figure = go.Figure()
    low = float(min(table["observed"].min(), table["mean"].min()))
    high = float(max(table["observed"].max(), table["mean"].max()))
    kinds = ((True, "inside its interval", "circle", _BLUE), (False, "outside", "x", _ORANGE))
    for inside, name, symbol, colour in kinds:
        part = table[table["inside"] == inside]
        if part.empty:
            continue
        reach = {"array": part["upper"] - part["mean"], "arrayminus": part["mean"] - part["lower"]}
        figure.add_scatter(
            x=part["observed"],
            y=part["mean"],
            mode="markers",
            name=name,
            marker={"symbol": symbol, "color": colour, "size": 8},
            error_y={"color": colour, "thickness": 0.8, "width": 0, **reach},
            hovertext=[_row_text(row) for row in part.itertuples()],
            hoverinfo="text",
        )
    line = {"color": _DARK, "dash": "dash", "width": 1}
    ends = [low, high]
    figure.add_scatter(x=ends, y=ends, mode="lines", line=line, name="equal", hoverinfo="skip")
    response = plain_text(findings.response)
    return _finished(figure, f"{response}, observed", f"{response}, predicted from the other rows")


def _row_text(row: Any) -> str:
    return (
        f"row {row.Index + 1}<br>observed {row.observed:.4g}<br>predicted {row.mean:.4g} "
        f"({row.lower:.4g} to {row.upper:.4g})"
    )


def calibration(findings: Findings) -> go.Figure:
    """Draw the share of rows inside leave-one-out intervals of every nominal coverage."""
    table, rows = findings.calibration, len(findings.left_out)
    nominal = table["nominal"].to_numpy()
    spread = 1.96 * np.sqrt(nominal * (1 - nominal) / rows)
    figure = go.Figure()
    _add_band(figure, nominal, nominal - spread, nominal + spread, "chance, if calibrated")
    figure.add_scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        name="ideal",
        line={"color": _DARK, "dash": "dash", "width": 1},
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=nominal,
        y=table["observed"],
        mode="lines+markers",
        name="this model",
        line={"color": _BLUE},
        hovertemplate="intervals of %{x:.0%} hold %{y:.0%} of the rows<extra></extra>",
    )
    figure.update_xaxes(range=[0, 1], tickformat=".0%")
    figure.update_yaxes(range=[0, 1], tickformat=".0%")
    return _finished(figure, "coverage claimed", "share of rows inside")


def main_effect(column: Hashable, effect: pd.DataFrame, response: str) -> go.Figure:
    """Draw the response averaged over the table against one column, with its band."""
    figure = go.Figure()
    lower, upper = effect["lower"].to_numpy(), effect["upper"].to_numpy()
    mean = effect["mean"].to_numpy()
    if pd.api.types.is_float_dtype(effect["value"]) and len(effect) > 2:
        values = effect["value"].to_numpy()
        _add_band(figure, values, lower, upper, "95 % band")
        template = "%{x:.4g}: %{y:.4g}<extra></extra>"
        line = {"color": _BLUE}
        figure.add_scatter(
            x=values, y=mean, mode="lines", name="mean", line=line, hovertemplate=template
        )
    else:
        names = [plain_text(level) for level in effect["value"]]
        reach = {"array": upper - mean, "arrayminus": mean - lower}
        figure.add_scatter(
            x=np.arange(len(names)),
            y=mean,
            mode="markers",
            name="mean with 95 % interval",
            marker={"color": _BLUE, "size": 8},
            error_y={"color": _BLUE, "thickness": 1.2, **reach},
            hovertext=[
                f"{name}: {value:.4g} ({low:.4g} to {high:.4g})"
                for name, value, low, high in zip(names, mean, lower, upper, strict=True)
            ],
            hoverinfo="text",
        )
        figure.update_xaxes(tickvals=np.arange(len(names)), ticktext=names)
    return _finished(figure, plain_text(column), f"{plain_text(response)}, averaged")


def latent_map(latent: LatentMap) -> go.Figure:
    """Draw the map with what each level is like on hover, and regions that can be hidden."""
    figure, points = go.Figure(), latent.coordinates.to_numpy() @ latent.plane
    known = latent.known.to_numpy()
    has_regions = len(latent.draws) > 1
    if has_regions:
        outlines = [latent.outline(level) for level in latent.levels]
        line = {"color": _BLUE, "width": 1}
        figure.add_scatter(
            **_joined(outlines),
            mode="lines",
            name="80 % regions",
            line=line,
            fill="toself",
            fillcolor="rgba(0, 114, 178, 0.10)",
            hoverinfo="skip",
        )
    kinds = ((True, "level", "circle", _BLUE), (False, "no observations", "circle-open", _GREY))
    for observed, name, symbol, colour in kinds:
        chosen = np.flatnonzero(known == observed)
        if not len(chosen):
            continue
        figure.add_scatter(
            x=points[chosen, 0],
            y=points[chosen, 1],
            mode="markers+text",
            name=name,
            text=[plain_text(latent.levels[at]) for at in chosen],
            textposition="top center",
            marker={"symbol": symbol, "color": colour, "size": 10},
            hovertext=[level_text(latent, int(at)) for at in chosen],
            hoverinfo="text",
        )
    if has_regions:
        figure.update_layout(updatemenus=[_toggle()])
    flat = latent.coordinates.shape[1] == 1
    figure.update_yaxes(visible=not flat)
    if not flat:
        figure.update_yaxes(scaleanchor="x")
    return _finished(figure, *latent.axis_labels, 560, 0.35)


def level_text(latent: LatentMap, at: int) -> str:
    """Return what is said of a level on hover: its rows, and the levels most like it."""
    level = latent.levels[at]
    lines = [f"<b>{plain_text(level)}</b>", f"{latent.observations.iloc[at]} observations"]
    if len(latent.draws) > 1:
        nearest = latent.nearest(level, len(latent.levels))
        nearest = nearest.sort_values("probability", ascending=False, kind="stable")
        lines.append("most alike, with probability:")
        for name, probability in nearest["probability"].head(_NEAREST).items():
            lines.append(f"{plain_text(name)} {probability:.0%}")
    else:
        nearest = latent.nearest(level, _NEAREST)
        lines.append("most alike, by correlation:")
        lines += [
            f"{plain_text(name)} {value:.2f}" for name, value in nearest["correlation"].items()
        ]
    return "<br>".join(lines)


def _toggle() -> dict[str, Any]:
    """Buttons that show and hide the first trace, the regions."""
    button = {"method": "restyle"}
    return {
        "type": "buttons",
        "direction": "right",
        "x": 0,
        "xanchor": "left",
        "y": 1.02,
        "yanchor": "bottom",
        "buttons": [
            button | {"label": "Show regions", "args": [{"visible": True}, [0]]},
            button | {"label": "Hide regions", "args": [{"visible": False}, [0]]},
        ],
    }


def correlation_map(latent: LatentMap) -> go.Figure:
    """Draw the correlation between levels, those that act alike beside each other."""
    order = latent.order
    names = [plain_text(latent.levels[at]) for at in order]
    mean = latent.correlation.to_numpy()[np.ix_(order, order)]
    lower, upper = (
        part.to_numpy()[np.ix_(order, order)] for part in latent.correlation_interval(0.95)
    )
    texts = [
        [
            f"{first} and {second}<br>correlation {mean[i, j]:.2f} "
            f"({lower[i, j]:.2f} to {upper[i, j]:.2f})"
            for j, second in enumerate(names)
        ]
        for i, first in enumerate(names)
    ]
    figure = go.Figure(
        go.Heatmap(
            z=mean.round(4),
            zmin=0,
            zmax=1,
            colorscale=[[0, "#ffffff"], [1, "#5aa5d8"]],
            textfont={"color": _DARK},
            # numbers in the squares where they can be read, so that colour is not needed
            texttemplate="%{z:.2f}" if len(names) <= _MOST_NUMBERED else None,
            hovertext=texts,
            hoverinfo="text",
            colorbar={"title": "correlation"},
        )
    )
    figure.update_xaxes(tickvals=np.arange(len(names)), ticktext=names)
    ticks = {"tickvals": np.arange(len(names)), "ticktext": names}
    figure.update_yaxes(**ticks, autorange="reversed", scaleanchor="x", constrain="domain")
    figure.update_xaxes(constrain="domain")
    return _finished(figure, "", "", 560)


def _add_band(
    figure: go.Figure, x: np.ndarray, lower: np.ndarray, upper: np.ndarray, name: str
) -> None:
    figure.add_scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([upper, lower[::-1]]),
        mode="lines",
        line={"width": 0.5, "color": _GREY},
        fill="toself",
        fillcolor="rgba(118, 118, 118, 0.2)",
        name=name,
        hoverinfo="skip",
    )


def _joined(outlines: Iterable[np.ndarray]) -> dict[str, Sequence[float | None]]:
    """Return polygons as one line with gaps, which Plotly fills one by one."""
    x: list[float | None] = []
    y: list[float | None] = []
    for outline in outlines:
        x += [*outline[:, 0].round(5).tolist(), None]
        y += [*outline[:, 1].round(5).tolist(), None]
    return {"x": x, "y": y}


def _finished(
    figure: go.Figure, x: str, y: str, height: int = 400, legend: float = 0.0
) -> go.Figure:
    figure.update_xaxes(title=x, gridcolor="#dddddd", linecolor=_DARK, zeroline=False)
    figure.update_yaxes(title=y, gridcolor="#dddddd", linecolor=_DARK, zeroline=False)
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 70, "r": 20, "t": 50, "b": 60},
        font={"color": _DARK, "size": 13},
        # beside the toolbar, which is at the right
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": legend, "xanchor": "left"},
        hoverlabel={"bgcolor": "white", "font": {"color": _DARK}},
    )
    return figure
