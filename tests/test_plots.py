"""Pictures, by what they draw."""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from lvgp import interpret, plots

LEVELS = ("Nb", "Ta", "W", "Zr", "Hf")


@pytest.fixture(scope="module")
def latent():
    rng = np.random.default_rng(0)
    truth = np.array([[0, 0], [0.3, 0.1], [2, 0], [1, 1.5], [1.1, 1.4]], float)
    draws = truth + 0.1 * rng.normal(size=(200, 5, 2))
    return interpret.latent_map("rbf", "M", LEVELS, (4, 3, 5, 6, 0), draws)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def boxes(ax):
    ax.figure.canvas.draw()
    renderer = ax.figure.canvas.get_renderer()
    return [text.get_window_extent(renderer).extents for text in ax.texts]


def test_latent_map_draws_every_level_where_it_is(latent):
    ax = latent.plot()
    known, unknown = ax.collections
    np.testing.assert_allclose(known.get_offsets(), latent.coordinates.to_numpy()[:4])
    np.testing.assert_allclose(unknown.get_offsets(), latent.coordinates.to_numpy()[4:])
    assert [text.get_text() for text in ax.texts] == ["Nb", "Ta", "W", "Zr", "Hf (not known)"]
    assert len(ax.patches) == 10
    assert "M" in ax.get_title()


def test_regions_can_be_left_out_and_axes_given(latent):
    figure, ax = plt.subplots()
    assert plots.latent_map(latent, ax, regions=False) is ax
    assert ax.figure is figure
    assert len(ax.patches) == 0


def test_labels_do_not_overlap_even_when_levels_crowd():
    rng = np.random.default_rng(1)
    draws = np.tile(0.4 * rng.normal(size=(1, 20, 2)), (2, 1, 1))
    names = tuple(f"level {k}" for k in range(20))
    ax = interpret.latent_map("rbf", "M", names, (1,) * 20, draws).plot()
    found = boxes(ax)
    overlaps = [plots._overlap(found[a], found[b]) for a in range(20) for b in range(a + 1, 20)]
    assert np.count_nonzero(np.array(overlaps) > 4) == 0


@pytest.mark.parametrize("dim", [1, 3])
def test_maps_of_other_dimensions(dim):
    rng = np.random.default_rng(2)
    draws = rng.normal(size=(1, 5, dim)) + 0.1 * rng.normal(size=(50, 5, dim))
    latent = interpret.latent_map("rbf", "M", LEVELS, (1,) * 5, draws)
    ax = latent.plot()
    offsets = np.asarray(ax.collections[0].get_offsets())
    np.testing.assert_allclose(offsets, latent.coordinates.to_numpy() @ latent.plane)
    assert ax.get_xlabel() == latent.axis_labels[0]
    assert len(ax.texts) == 5


def test_grid_of_single_draws(latent):
    axes = plots.single_draw_maps(latent, rows=2, columns=2)
    assert axes.shape == (2, 2)
    points = np.asarray(axes[0, 0].collections[0].get_offsets())
    np.testing.assert_allclose(points, interpret.in_frame(latent.draws[0]))
    np.testing.assert_allclose(points[0], 0.0)


def test_single_draws_of_more_dimensions_show_the_widest_directions():
    draws = np.random.default_rng(4).normal(size=(6, 5, 4)) * [0.1, 0.1, 1.0, 3.0]
    latent = interpret.latent_map("rbf", "M", LEVELS, (1,) * 5, draws)
    ax = plots.single_draw_maps(latent, rows=1, columns=1).ravel()[0]
    points = np.asarray(ax.collections[0].get_offsets())
    variances = np.sort(np.linalg.eigvalsh(np.cov(draws[0].T)))[::-1]
    np.testing.assert_allclose(np.cov(points.T), np.diag(variances[:2]), atol=1e-10)


def test_correlation_map_orders_by_similarity_and_shows_both_halves(latent):
    order = list(latent.order)
    names = [LEVELS[position] for position in order]
    assert abs(names.index("Nb") - names.index("Ta")) == 1
    assert abs(names.index("Zr") - names.index("Hf")) == 1
    ax = plots.correlation_map(latent)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == names
    mean, width = (np.ma.filled(image.get_array(), np.nan) for image in ax.images)
    expected = latent.correlation.to_numpy()[np.ix_(order, order)]
    np.testing.assert_allclose(mean[np.triu_indices(5)], expected[np.triu_indices(5)])
    lower, upper = latent.correlation_interval(0.95)
    expected = (upper - lower).to_numpy()[np.ix_(order, order)]
    np.testing.assert_allclose(width[np.tril_indices(5, -1)], expected[np.tril_indices(5, -1)])


def test_truth_beside_the_estimate(latent):
    truth = pd.DataFrame({"r": [1, 1, 2, 3, 3], "H": [5, 6, 5, 5, 6]})
    left, right = plots.truth_beside_map(latent, truth)
    np.testing.assert_allclose(left.collections[0].get_offsets(), truth)
    assert right.get_title().startswith("Latent map")
    assert len(left.lines) == len(right.lines) == 3


def test_observed_against_predicted_marks_misses():
    interval = pd.DataFrame({"mean": [1.0, 2, 3], "lower": [0.5, 1, 2], "upper": [1.5, 3, 2.9]})
    ax = plots.observed_against_predicted([1.2, 2.0, 4.0], interval)
    inside, outside = ax.collections[-2:]
    np.testing.assert_allclose(inside.get_offsets(), [[1.2, 1], [2, 2]])
    np.testing.assert_allclose(outside.get_offsets(), [[4, 3]])
    assert "67%" in ax.get_title()


def test_calibration_of_right_quantiles_is_the_diagonal():
    from scipy.stats import norm

    y = norm.ppf((np.arange(1000) + 0.5) / 1000)
    levels = [0.05, 0.25, 0.45, 0.55, 0.75, 0.95]
    quantiles = pd.DataFrame({p: np.full(1000, norm.ppf(p)) for p in levels})
    ax = plots.calibration(y, quantiles, label="right")
    line = ax.lines[-1]
    np.testing.assert_allclose(line.get_xdata(), [0, 0.1, 0.5, 0.9], atol=1e-12)
    np.testing.assert_allclose(line.get_ydata(), line.get_xdata(), atol=2e-3)


def test_boxes_of_scores_keep_the_order_of_the_methods():
    results = pd.DataFrame({"method": ["map", "bayes"] * 4, "rrmse": np.arange(8.0) + 1})
    ax = plots.score_boxes(results, "rrmse", log=True, nominal=2.0)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["map", "bayes"]
    assert ax.get_yscale() == "log"
    points = ax.collections[0].get_offsets()[:, 1]
    np.testing.assert_allclose(points, [1, 3, 5, 7])


def test_picture_of_a_map_is_the_one_looked_at(latent, tmp_path):
    """Against a picture that was looked at; fonts and anti-aliasing may differ a little."""
    from pathlib import Path

    figure, ax = plt.subplots(figsize=(4, 4), dpi=60)
    latent.plot(ax)
    figure.savefig(tmp_path / "map.png")
    known = plt.imread(Path(__file__).parent / "images" / "latent_map.png")
    found = plt.imread(tmp_path / "map.png")
    assert found.shape == known.shape
    assert np.abs(found - known).mean() < 0.02


def test_traces_of_identified_quantities_on_given_axes():
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(0)
    data = arviz.from_dict(
        posterior={
            "signal_sd": rng.gamma(3.0, size=(2, 60)),
            "latent_precision": rng.gamma(2.0, size=(2, 60, 3)),
        }
    )
    found = plots.traces(data)
    assert found.shape == (2, 2)
    assert [ax.get_title() for ax in found[:, 0]] == ["signal_sd", "latent_precision"]
    # one density for each chain, and for each of three columns and chain
    assert [len(ax.get_lines()) for ax in found[:, 0]] == [2, 6]
    _, axes = plt.subplots(1, 2, squeeze=False)
    again = plots.traces(data, ["signal_sd"], ax=axes)
    assert again[0, 0] is axes[0, 0]
    plt.close("all")
