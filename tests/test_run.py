"""Which inference runs, and what is said beforehand."""

import warnings

import numpy as np
import pandas as pd
import pytest

from lvgp import LVGPRegressor
from lvgp.errors import LVGPError, LVGPWarning, OptionWarning, SlowFitWarning
from lvgp.infer import run


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


def test_so_is_a_long_sparse_fit(monkeypatch):
    monkeypatch.setattr(run, "_ROWS_WORTH_TIMING", 20)
    monkeypatch.setattr(run, "_LONG", 0.0)
    options = {"draws": 60, "warmup": 40, "random_state": 0, "progress": False}
    model = LVGPRegressor(approximation="vfe", n_inducing=6, restarts=2, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        warnings.simplefilter("always", SlowFitWarning)
        with pytest.warns(SlowFitWarning, match="sparse model.*Fewer inducing points"):
            model.fit(*table())


def test_a_short_fit_is_not():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        warnings.simplefilter("error", SlowFitWarning)
        model = LVGPRegressor(draws=60, warmup=40, random_state=0, progress=False).fit(*table())
    assert model.draws_.sampling is not None


def test_the_time_limit_counts_the_search_for_the_mode_too():
    model = LVGPRegressor(
        approximation="vfe", n_inducing=8, time_limit=1e-3, random_state=0, progress=False
    )
    with pytest.raises(LVGPError, match="time limit"):
        model.fit(*table())


def test_options_of_chains_are_not_silently_ignored_by_other_methods():
    model = LVGPRegressor("map", draws=500, time_limit=60, restarts=2, random_state=0)
    with pytest.warns(OptionWarning, match='draws, time_limit: has an effect with method="bayes"'):
        model.fit(*table())
