"""Which inference runs, and what is said beforehand."""

import time
import warnings

import numpy as np
import pandas as pd
import pytest

from lvgp import LVGPRegressor, options
from lvgp.errors import LVGPError, LVGPWarning, OptionWarning, SlowFitWarning
from lvgp.infer import run
from lvgp.model import Model
from lvgp.space import build_space


def table(rows=24):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"site": rng.permutation(np.resize(list("abc"), rows)), "x": rng.random(rows)})
    return X, X["x"] + X["site"].map({"a": 0.0, "b": 0.2, "c": 1.0}) + 0.1 * rng.normal(size=rows)


def test_a_long_exact_fit_is_announced_with_what_to_do_instead(monkeypatch):
    monkeypatch.setattr(run, "_ROWS_WORTH_TIMING", 20)
    monkeypatch.setattr(run, "_LONG", 0.0)
    model = LVGPRegressor(draws=60, warmup=40, random_state=0, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        warnings.simplefilter("always", SlowFitWarning)
        with pytest.warns(SlowFitWarning, match='24 distinct rows.*minutes.*approximation="vfe"'):
            model.fit(*table())


def test_so_is_a_long_sparse_fit_and_its_search_for_points_counts(monkeypatch):
    """The time limit is told to count from before the search."""
    monkeypatch.setattr(run, "_ROWS_WORTH_TIMING", 20)
    monkeypatch.setattr(run, "_LONG", 0.0)
    times = {}

    def found(*arguments):
        times["search"] = time.perf_counter()
        return find_points(*arguments)

    def stopped(*_, begun, **__):
        times["begun"] = begun
        raise LVGPError("enough seen")

    find_points = run.find_points
    monkeypatch.setattr(run, "find_points", found)
    monkeypatch.setattr(run, "sample", stopped)
    options = {"time_limit": 60, "random_state": 0, "progress": False}
    model = LVGPRegressor(approximation="vfe", n_inducing=6, restarts=2, **options)
    with (
        pytest.warns(SlowFitWarning, match=r"sparse model.*ends that after 60 s.*Fewer"),
        pytest.raises(LVGPError, match="enough seen"),
    ):
        model.fit(*table())
    assert times["begun"] <= times["search"]


def test_a_short_fit_is_not():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        warnings.simplefilter("error", SlowFitWarning)
        model = LVGPRegressor(draws=60, warmup=40, random_state=0, progress=False).fit(*table())
    assert model.draws_.sampling is not None


@pytest.mark.parametrize(
    ("levels", "dim", "method", "warned"),
    [
        (30, 2, "bayes", True),
        (30, 1, "bayes", True),
        (29, 2, "bayes", False),
        (30, 3, "bayes", False),
        (30, 2, "vi", False),
    ],
)
def test_dozens_of_levels_on_a_plane_are_warned_of_before_sampling(levels, dim, method, warned):
    space = build_space(pd.DataFrame({"site": np.resize(np.arange(levels).astype(str), 200)}))
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        options.warn_of_many_levels(space, Model(0, (levels,), (dim,)), method, 200)
    assert [one.category for one in given] == [SlowFitWarning] * warned
    assert all("latent_dim={'site': 8} (on the command line" in str(one.message) for one in given)


def test_the_warning_of_dozens_of_levels_comes_before_the_time_is_spent():
    names = [f"s{number}" for number in range(31)]
    X = pd.DataFrame({"site": np.resize(names, 62)})
    model = LVGPRegressor(time_limit=1e-3, random_state=0, progress=False)
    with (
        pytest.warns(SlowFitWarning, match=r"dozens of levels.*\{'site': 8\}"),
        pytest.raises(LVGPError, match="time limit"),
    ):
        model.fit(X, np.arange(62.0) % 7)


def test_options_of_chains_are_not_silently_ignored_by_other_methods():
    model = LVGPRegressor("map", draws=500, time_limit=60, restarts=2, random_state=0)
    with pytest.warns(OptionWarning, match='draws, time_limit: has an effect with method="bayes"'):
        model.fit(*table())
