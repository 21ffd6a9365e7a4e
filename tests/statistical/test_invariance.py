"""What must not matter: the order and names of levels, columns and rows; the units of y."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lvgp import LVGPRegressor

SETTINGS = {"progress": False, "random_state": 0}


def table(rows=24, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "site": rng.permutation(np.resize(list("abcd"), rows)),
            "ligand": rng.permutation(np.resize(list("uvw"), rows)),
            "heat": rng.random(rows),
        }
    )
    y = np.sin(4 * X["heat"]) + X["site"].map({"a": 0, "b": 0.2, "c": 1, "d": 2})
    return X, y + X["ligand"].map({"u": 0, "v": 0.5, "w": -0.5}) + rng.normal(0, 0.1, rows)


X, Y = table()
NEW, _ = table(12, seed=1)


@pytest.mark.parametrize("method", ["bayes", pytest.param("vi", marks=pytest.mark.long), "map"])
@pytest.mark.parametrize(("scale", "shift"), [(1000.0, 0.0), (0.37, -250.0)])
@pytest.mark.filterwarnings("ignore::lvgp.errors.LVGPWarning")
def test_other_units_of_y_scale_everything_exactly(method, scale, shift):
    options = SETTINGS | {"method": method, "warmup": 100, "draws": 100, "restarts": 4}
    ours = LVGPRegressor(**options).fit(X, Y)
    scaled = LVGPRegressor(**options).fit(X, shift + scale * Y)
    before, after = (model.predict_interval(NEW) for model in (ours, scaled))
    np.testing.assert_allclose(after, shift + scale * before, rtol=1e-9)
    np.testing.assert_allclose(
        scaled.predict(NEW, return_std=True)[1], scale * ours.predict(NEW, return_std=True)[1]
    )
    loo, scaled_loo = ours.loo(), scaled.loo()
    np.testing.assert_allclose(scaled_loo["mean"], shift + scale * loo["mean"], rtol=1e-9)
    np.testing.assert_allclose(scaled_loo["sd"], scale * loo["sd"], rtol=1e-7)
    np.testing.assert_array_equal(scaled.draws_.vectors, ours.draws_.vectors)


def rows_shuffled(X, y):
    order = np.random.default_rng(3).permutation(len(X))
    return X.iloc[order], y.iloc[order], lambda new: new


def columns_reordered(X, y):
    order = ["heat", "ligand", "site"]
    return X[order], y, lambda new: new[order]


def levels_renamed(X, y):
    """Other names, sorting the other way."""
    names = {"a": "z", "b": "y", "c": "x", "d": "q"}

    def rename(table):
        return table.assign(site=table["site"].map(names))

    return rename(X), y, rename


@pytest.mark.long
@pytest.mark.parametrize("change", [rows_shuffled, columns_reordered, levels_renamed])
def test_order_and_names_matter_no_more_than_monte_carlo_error(change):
    """Predictive means of 12 rows from converged fits: |z| < 5 for 12 comparisons, with the error
    of the worst quantity; false alarms below 1e-5. Sds within 15 %."""
    ours = LVGPRegressor(**SETTINGS).fit(X, Y)
    X_other, y_other, transform = change(X, Y)
    theirs = LVGPRegressor(**(SETTINGS | {"random_state": 1})).fit(X_other, y_other)
    assert ours.diagnostics_.verdict == theirs.diagnostics_.verdict == "ok"
    mean, sd = ours.predict(NEW, return_std=True)
    other_mean, other_sd = theirs.predict(transform(NEW), return_std=True)
    least = min(m.diagnostics_.table["ess_bulk"].min() for m in (ours, theirs))
    assert (np.abs(mean - other_mean) < 5 * sd * np.sqrt(2 / least)).all()
    np.testing.assert_allclose(sd, other_sd, rtol=0.15)
