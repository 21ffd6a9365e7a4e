"""Pictures: the only importer of matplotlib. Each function draws on `ax` and returns its Axes.

`latent` is a `LatentMap` throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from lvgp.infer.convergence import import_arviz
from lvgp.metrics import coverage as share_covered

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
"""Of Okabe and Ito's palette, told apart by all kinds of colour vision."""


def latent_map(
    latent: Any, ax: Axes | None = None, *, regions: bool = True, coverage: float = 0.8
) -> Axes:
    """Draw the representative map, an ellipse holding `coverage` of the draws around each level.

    Levels without data are hollow, dashed and marked "not known". A map of one dimension is drawn
    along a line, one of more than two in its two widest directions, and the axes say so.
    """
    ax = _axes(ax, (5.0, 4.6))
    points = latent.coordinates.to_numpy() @ latent.plane
    flat = latent.coordinates.shape[1] == 1
    known = latent.known.to_numpy()
    if regions and len(latent.draws) > 1:
        for level, has_data in zip(latent.levels, known, strict=True):
            _draw_region(ax, latent.outline(level, coverage), has_data, flat)
    ax.scatter(points[known, 0], points[known, 1], s=22, color=BLUE, zorder=3, label="level")
    if not known.all():
        x, y = points[~known].T
        style: dict[str, Any] = {"facecolors": "white", "edgecolors": GREY, "zorder": 3}
        ax.scatter(x, y, s=22, label="no observations: not known", **style)
        ax.legend(loc="best", fontsize="small", frameon=False)
    texts = [
        str(level) if has_data else f"{level} (not known)"
        for level, has_data in zip(latent.levels, known, strict=True)
    ]
    ax.set_title(f"Latent map of {latent.column}")
    across, up = latent.axis_labels
    ax.set_xlabel(across)
    ax.set_ylabel("" if flat else up)
    if flat:
        ax.set_yticks([])
    else:
        ax.set_aspect("equal", adjustable="datalim")
    _pad_limits(ax)
    label_points(ax, points, texts)
    return ax


def _draw_region(ax: Axes, outline: np.ndarray, known: bool, flat: bool) -> None:
    colour, line = (BLUE, "-") if known else (GREY, "--")
    if flat:
        ax.plot(*outline.T, color=colour, linestyle=line, linewidth=3, alpha=0.3)
        return
    face: dict[str, Any] = {"facecolor": BLUE if known else "none", "alpha": 0.12, "linewidth": 0}
    ax.add_patch(Polygon(outline, **face))
    edge: dict[str, Any] = {"edgecolor": colour, "linestyle": line, "alpha": 0.7}
    ax.add_patch(Polygon(outline, fill=False, linewidth=0.7, **edge))


def label_points(ax: Axes, points: np.ndarray, texts: Sequence[str]) -> list[Any]:
    """Write a label beside each point, where it overlaps least with points and other labels."""
    figure: Any = ax.figure
    figure.canvas.draw()
    renderer, pixels_a_point = figure.canvas.get_renderer(), figure.dpi / 72.0
    places = ax.transData.transform(points)
    taken = [np.array([*(place - 4), *(place + 4)]) for place in places]
    labels = []
    for point, place, text in zip(points, places, texts, strict=True):
        offset: dict[str, Any] = {
            "textcoords": "offset points",
            "xytext": (0, 0),
            "fontsize": 8,
            "zorder": 4,
        }
        label: Any = ax.annotate(text, tuple(point), **offset)
        extent = label.get_window_extent(renderer)
        box = _freest_box(place, np.array([extent.width, extent.height]), taken, pixels_a_point)
        label.set_position((box[:2] - place) / pixels_a_point)
        taken.append(box)
        labels.append(label)
    return labels


def _freest_box(
    place: np.ndarray, size: np.ndarray, taken: list[np.ndarray], pixels_a_point: float
) -> np.ndarray:
    """Return the box (left, bottom, right, top) around `place` that covers least of those taken."""
    best, least = np.zeros(4), np.inf
    for distance in (5, 9, 14, 20, 28, 38):
        for angle in np.linspace(0, 2 * np.pi, 16, endpoint=False):
            direction = np.array([np.cos(angle), np.sin(angle)])
            middle = place + direction * (distance * pixels_a_point + 0.5 * size)
            box = np.concatenate([middle - 0.5 * size, middle + 0.5 * size])
            cost = sum(_overlap(box, other) for other in taken) + 0.05 * distance
            if cost < least:
                best, least = box, cost
    return best


def _overlap(one: np.ndarray, other: np.ndarray) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return float(max(width, 0.0) * max(height, 0.0))


def single_draw_maps(
    latent: Any, ax: np.ndarray | None = None, *, rows: int = 2, columns: int = 3
) -> np.ndarray:
    """Draw the maps of single draws, each in its own frame: how ambiguous one draw is."""
    if ax is None:
        _, ax = plt.subplots(
            rows, columns, figsize=(2.6 * columns, 2.4 * rows), layout="constrained"
        )
    axes = np.atleast_1d(np.asarray(ax, dtype=object))
    chosen = np.linspace(0, len(latent.draws) - 1, axes.size).round().astype(int)
    for one, draw in zip(axes.ravel(), chosen, strict=True):
        points = _two_dimensional(latent.in_own_frame(draw))
        one.scatter(*points.T, s=12, color=BLUE)
        one.set_title(f"draw {draw + 1}", fontsize="small")
        one.set_aspect("equal", adjustable="datalim")
        _pad_limits(one)
        label_points(one, points, [str(level) for level in latent.levels])
    return axes


def correlation_map(latent: Any, ax: Axes | None = None, *, coverage: float = 0.95) -> Axes:
    """Draw correlations as a heat map, similar levels side by side.

    Above the diagonal the posterior mean, below it the width of the interval.
    """
    ax = _axes(ax, (5.6, 5.0))
    order = latent.order
    mean = latent.correlation.to_numpy()[np.ix_(order, order)]
    lower, upper = (part.to_numpy() for part in latent.correlation_interval(coverage))
    width = (upper - lower)[np.ix_(order, order)]
    above = np.triu(np.ones_like(mean, bool))
    image = ax.imshow(np.where(above, mean, np.nan), cmap="viridis", vmin=0, vmax=1)
    widths = ax.imshow(np.where(above, np.nan, width), cmap="Greys", vmin=0, vmax=1)
    names = [str(latent.levels[position]) for position in order]
    ax.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.figure.colorbar(image, ax=ax, shrink=0.7, label="correlation (above the diagonal)")
    label = f"width of {coverage:.0%} interval (below)"
    ax.figure.colorbar(widths, ax=ax, shrink=0.7, label=label)
    ax.set_title(f"Levels of {latent.column}, similar ones together")
    return ax


def truth_beside_map(latent: Any, truth: pd.DataFrame, ax: np.ndarray | None = None) -> np.ndarray:
    """Draw the true values behind the levels of a test problem beside the estimated map.

    `truth` has a row for each level, in the order of the map, and two columns; levels that share
    the first are joined by a line in both pictures.
    """
    if ax is None:
        _, ax = plt.subplots(1, 2, figsize=(9.0, 4.2), layout="constrained")
    left, right = np.asarray(ax, dtype=object).ravel()
    first, second = truth.columns[:2]
    left.scatter(truth[first], truth[second], s=18, color=GREEN)
    left.set_xlabel(str(first))
    left.set_ylabel(str(second))
    left.set_title("truth")
    _pad_limits(left)
    label_points(left, truth[[first, second]].to_numpy(float), [str(v) for v in latent.levels])
    latent_map(latent, right)
    points = latent.coordinates.to_numpy() @ latent.plane
    for value in np.unique(truth[first]):
        members = (truth[first] == value).to_numpy()
        left.plot(truth[first][members], truth[second][members], color=GREY, linewidth=0.6)
        right.plot(*points[members].T, color=GREY, linewidth=0.6)
    return np.array([left, right], dtype=object)


def observed_against_predicted(
    y: Any, interval: pd.DataFrame, ax: Axes | None = None, *, coverage: float = 0.95
) -> Axes:
    """Draw observed values against predictions with their intervals (columns mean, lower, upper).

    Observations outside their interval are marked by crosses.
    """
    ax = _axes(ax, (4.8, 4.6))
    y = np.asarray(y, dtype=float)
    mean, lower, upper = (interval[name].to_numpy() for name in ("mean", "lower", "upper"))
    inside = (lower <= y) & (y <= upper)
    ends = np.abs(np.stack([mean - lower, upper - mean]))
    style: dict[str, Any] = {"fmt": "none", "ecolor": BLUE, "elinewidth": 0.7, "alpha": 0.5}
    ax.errorbar(y, mean, yerr=ends, **style)
    ax.scatter(y[inside], mean[inside], s=14, color=BLUE, zorder=3, label="inside its interval")
    outside: dict[str, Any] = {"s": 26, "color": ORANGE, "marker": "x", "zorder": 3}
    ax.scatter(y[~inside], mean[~inside], label="outside", **outside)
    span = [min(y.min(), mean.min()), max(y.max(), mean.max())]
    ax.plot(span, span, color=GREY, linewidth=0.8, zorder=1)
    ax.set_xlabel("observed")
    ax.set_ylabel("predicted")
    ax.set_title(f"{inside.mean():.0%} of observations inside {coverage:.0%} intervals")
    ax.legend(fontsize="small", frameon=False)
    return ax


def calibration(
    y: Any, quantiles: pd.DataFrame, ax: Axes | None = None, label: str | None = None
) -> Axes:
    """Draw the share of observations inside central intervals against their nominal coverage.

    `quantiles` as from `predict_quantiles`: columns p and 1 - p for each interval.
    """
    ax = _axes(ax, (4.4, 4.2))
    y = np.asarray(y, dtype=float)
    lower_ends = sorted(float(p) for p in quantiles.columns if float(p) < 0.5)
    by_p = {round(float(p), 12): quantiles[p].to_numpy() for p in quantiles.columns}
    nominal, found = [0.0], [0.0]
    for p in sorted(lower_ends, reverse=True):
        nominal.append(1.0 - 2.0 * p)
        found.append(share_covered(y, by_p[round(p, 12)], by_p[round(1.0 - p, 12)]))
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--")
    ax.plot(nominal, found, color=BLUE, marker="o", markersize=3, label=label)
    ax.set_xlabel("nominal coverage")
    ax.set_ylabel("share of observations inside")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_aspect("equal")
    if label:
        ax.legend(fontsize="small", frameon=False)
    return ax


def traces(
    data: Any,
    variables: Sequence[str] | None = None,
    kind: str = "rank_bars",
    ax: np.ndarray | None = None,
) -> np.ndarray:
    """Draw ArviZ's traces and ranks of identified quantities from `model.to_arviz()`.

    `ax` is an array of Axes, a row of two for each variable.
    """
    wanted = variables or ["signal_sd", "noise_sd", "latent_precision"]
    present = [name for name in wanted if name in data.posterior]
    if ax is None:
        size = (9.0, 2.2 * len(present))
        ax = plt.subplots(len(present), 2, figsize=size, squeeze=False, layout="constrained")[1]
    return np.asarray(import_arviz().plot_trace(data, var_names=present, kind=kind, axes=ax))


def score_boxes(
    results: pd.DataFrame,
    score: str,
    ax: Axes | None = None,
    *,
    by: str = "method",
    log: bool = False,
    nominal: float | None = None,
) -> Axes:
    """Draw a box of one score over replicates for each group, the replicates as points on it."""
    ax = _axes(ax, (4.8, 3.6))
    groups = list(dict.fromkeys(results[by]))
    values = [results.loc[results[by] == group, score].to_numpy(float) for group in groups]
    ax.boxplot(values, tick_labels=[str(group) for group in groups], widths=0.5, showfliers=False)
    for position, part in enumerate(values, 1):
        spread = np.linspace(-0.12, 0.12, len(part)) if len(part) > 1 else np.zeros(1)
        ax.scatter(position + spread, part, s=9, color=BLUE, alpha=0.7, zorder=3)
    if nominal is not None:
        ax.axhline(nominal, color=ORANGE, linewidth=0.9, linestyle="--")
    if log:
        ax.set_yscale("log")
    ax.set_ylabel(score)
    return ax


def level_points(points: np.ndarray, levels: Sequence[str], ax: Axes | None = None) -> Axes:
    """Draw levels at given places, without regions."""
    ax = _axes(ax, (4.2, 4.0))
    flat = _two_dimensional(points)
    ax.scatter(flat[:, 0], flat[:, 1], s=22, color=BLUE, zorder=3)
    ax.set_aspect("equal", adjustable="datalim")
    _pad_limits(ax)
    label_points(ax, flat, levels)
    return ax


def panels(count: int, columns: int = 3, size: tuple[float, float] = (3.6, 3.0)) -> Any:
    """Return a figure and a list of `count` Axes, `columns` in a row."""
    rows, columns = -(-count // columns), min(count, columns)
    figsize = (size[0] * columns, size[1] * rows)
    figure, axes = plt.subplots(rows, columns, figsize=figsize, squeeze=False, layout="constrained")
    for ax in axes.ravel()[count:]:
        ax.set_visible(False)
    return figure, list(axes.ravel()[:count])


def save(figure: Any, path: Any) -> None:
    """Write a figure to a file and forget it."""
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    return plt.subplots(figsize=size, layout="constrained")[1]


def _two_dimensional(points: np.ndarray) -> np.ndarray:
    """Return points of any dimension on the plane: of more than two, in their widest directions."""
    if points.shape[1] == 1:
        return np.column_stack([points[:, 0], np.zeros(len(points))])
    if points.shape[1] == 2:
        return points
    return points @ np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[2][:2].T


def _pad_limits(ax: Axes) -> None:
    ax.autoscale_view()
    ax.margins(0.12)
