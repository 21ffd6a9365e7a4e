"""method="bayes" and "vi" as users meet them: fit, predict, judge, save, export."""

from __future__ import annotations

import warnings

import arviz
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import lvgp
from lvgp.errors import ConvergenceWarning, InputError, LVGPWarning
from lvgp.export import hyperparameters

LEVELS = {"site": ["a", "b", "c", "d", "empty"]}


def table(rows, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "site": rng.permutation(np.resize(list("abcd"), rows)),
            "heat": rng.uniform(10, 20, rows),
            "half": rng.permutation(np.resize(["u", "v"], rows)),
        }
    )
    y = 50 + np.sin(X["heat"] / 3) + X["site"].map({"a": 0, "b": 0.2, "c": 1, "d": 2})
    return X, y + rng.normal(0, 0.1, rows)


X, Y = table(24, seed=0)
NEW, NEW_Y = table(40, seed=1)


def regressor(**options):
    usual = {"levels": LEVELS, "random_state": 0, "progress": False}
    return lvgp.LVGPRegressor(**(usual | options))


@pytest.fixture(scope="module")
def bayes():
    """A converged fit, which gives no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", LVGPWarning)
        return regressor().fit(X, Y)


@pytest.fixture(scope="module")
def vi():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return regressor(method="vi").fit(X, Y)


def test_default_method_is_full_bayes_and_converges(bayes):
    assert bayes.method == "bayes"
    assert bayes.diagnostics_.verdict == "ok"
    assert bayes.draws_.sampling.chains == 4
    assert bayes.draws_.sampling.sampler == "microcanonical"
    assert (bayes.diagnostics_.table["r_hat"] < 1.01).all()
    assert (bayes.diagnostics_.table["ess_bulk"] >= 400).all()


@pytest.mark.parametrize("name", ["bayes", "vi"])
def test_predictions_are_good_and_intervals_cover(name, request):
    """40 new responses; a 95 % interval covers fewer than 31 with odds below 1e-4."""
    model = request.getfixturevalue(name)
    assert model.score(NEW, NEW_Y) > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("error", LVGPWarning)
        interval = model.predict_interval(NEW, include_noise=True)
    assert ((interval["lower"] <= NEW_Y) & (interval["upper"] >= NEW_Y)).sum() >= 31
    assert (interval["lower"] < interval["mean"]).all()


def test_interval_is_that_of_the_papers_sampling_algorithm(bayes):
    """Algorithm 2 of the paper: draw a component, then f from it. 1e5 samples at 3 rows; |z| < 5
    for 6 shares: false alarms below 4e-6."""
    encoded = bayes.space_.encode(NEW.iloc[:3])
    (_, components), *_ = bayes.posterior_.over_rows(
        encoded, include_noise=False, read=lambda components: components
    )
    rng = np.random.default_rng(0)
    picked = rng.integers(len(components.means), size=100_000)
    interval = bayes.predict_interval(NEW.iloc[:3])
    for row in range(3):
        samples = rng.normal(components.means[picked, row], components.sds[picked, row])
        for end, share in (("lower", 0.025), ("upper", 0.975)):
            found = np.mean(samples <= interval[end].iloc[row])
            assert abs(found - share) < 5 * np.sqrt(0.025 * 0.975 / 1e5)


def test_level_without_data_is_wide_whether_declared_or_not(bayes):
    rows = pd.DataFrame({"site": ["a", "empty", "never"], "heat": 15.0, "half": "u"})
    with pytest.raises(InputError, match="unknown level 'never'"):
        bayes.predict(rows)
    bayes.set_params(unknown_levels="prior")
    try:
        mean, sd = bayes.predict(rows, return_std=True)
    finally:
        bayes.set_params(unknown_levels="error")
    assert np.isfinite(mean).all()
    assert sd[1] > 2 * sd[0]
    assert sd[2] > 2 * sd[0]
    assert sd[1] == pytest.approx(sd[2], rel=0.35)


@pytest.mark.parametrize("method", ["map", "mle"])
def test_point_estimate_too_is_wide_where_a_level_has_no_data(method):
    model = regressor(method=method, restarts=4).fit(X, Y)
    rows = pd.DataFrame({"site": ["a", "empty"], "heat": 15.0, "half": "u"})
    _, sd = model.predict(rows, return_std=True)
    assert sd[1] > 2 * sd[0]


def test_refit_with_the_seed_found_is_the_same_fit(bayes):
    short = {"warmup": 60, "draws": 30, "random_state": None}
    with pytest.warns(ConvergenceWarning, match="the fit is not ok: bad"):
        first = regressor(**short).fit(X, Y)
    with pytest.warns(ConvergenceWarning, match="raise draws"):
        again = regressor(**(short | {"random_state": first.seed_})).fit(X, Y)
    np.testing.assert_array_equal(first.draws_.vectors, again.draws_.vectors)
    assert first.diagnostics_.verdict == "bad"
    assert first.draws_.sampling.ended == "draws"


@pytest.mark.parametrize("name", ["bayes", "vi"])
def test_saved_model_predicts_and_judges_identically(name, request, tmp_path):
    model = request.getfixturevalue(name)
    model.save(tmp_path / "model.lvgp")
    loaded = lvgp.load(tmp_path / "model.lvgp")
    pd.testing.assert_frame_equal(
        loaded.predict_interval(NEW), model.predict_interval(NEW), check_exact=True
    )
    np.testing.assert_array_equal(loaded.sample_y(NEW, 3, 5), model.sample_y(NEW, 3, 5))
    assert str(loaded.diagnostics_) == str(model.diagnostics_)
    pd.testing.assert_frame_equal(loaded.diagnostics_.table, model.diagnostics_.table)
    pd.testing.assert_frame_equal(loaded.loo(), model.loo(), check_exact=True)


def test_leave_one_out_covers_and_knows_less_than_the_fit(bayes):
    """24 responses; a 95 % interval covers fewer than 17 with odds below 1e-4."""
    loo = bayes.loo()
    assert list(loo.columns) == ["mean", "sd", "lower", "upper", "pareto_k"]
    assert ((loo["lower"] <= Y) & (loo["upper"] >= Y)).sum() >= 17
    _, sd = bayes.predict(X, return_std=True)
    assert (bayes.loo(include_noise=False)["sd"] > sd).mean() > 0.9
    narrow = bayes.loo(coverage=0.5)
    assert ((narrow["upper"] - narrow["lower"]) < (loo["upper"] - loo["lower"])).all()


def test_the_interval_of_the_process_mean_is_that_of_its_draws(bayes):
    """mu is integrated out: its interval has the width that is left given the other parameters.

    Quantiles of some thousand draws against the exact mixture: within a tenth of the width."""
    lower, upper = hyperparameters(bayes.posterior_, bayes.space_).loc[
        "mean of the process", ["lower", "upper"]
    ]
    drawn = np.quantile(bayes.to_arviz().posterior["mean"], [0.025, 0.975])
    np.testing.assert_allclose([lower, upper], drawn, atol=0.1 * (upper - lower))


def test_arviz_tells_columns_of_awkward_names_apart():
    rng = np.random.default_rng(0)
    awkward = pd.DataFrame(
        {
            "precision": rng.permutation(np.resize(list("abc"), 24)),
            "precision_other": rng.permutation(np.resize(list("wxyz"), 24)),
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        model = lvgp.LVGPRegressor("map", restarts=2, random_state=0, progress=False)
        data = model.fit(awkward, rng.normal(size=24)).to_arviz()
    assert data.posterior["latent_precision"].shape == (1, 1, 2)
    first, second = data.posterior["correlation_precision"].dims[-2:]
    assert list(data.posterior[first].values) == list(data.posterior[second].values) == list("abc")
    assert data.unconstrained_posterior["latent_precision"].shape == (1, 1, 3, 2)
    assert list(data.posterior["precision_other_level"].values) == list("wxyz")


def test_arviz_has_names_units_and_densities(bayes):
    data = bayes.to_arviz()
    draws = bayes.draws_.sampling.draws
    assert dict(data.posterior.sizes) == {
        "chain": 4,
        "draw": draws,
        "numeric_column": 2,
        "categorical_column": 1,
        "site_level": 5,
        "site_other_level": 5,
    }
    assert list(data.posterior["site_level"].values) == LEVELS["site"]
    assert list(data.posterior["numeric_column"].values) == ["heat", "half"]
    vectors = bayes.draws_.by_chain(bayes.draws_.vectors)
    scale = bayes.posterior_.y_scale
    np.testing.assert_allclose(data.posterior["signal_sd"], scale * np.exp(vectors[..., 0] / 2))
    width = X["heat"].max() - X["heat"].min()
    np.testing.assert_allclose(
        data.posterior["lengthscale"].sel(numeric_column="heat"), width * np.exp(vectors[..., 2])
    )
    correlation = data.posterior["correlation_site"]
    np.testing.assert_allclose(correlation.sel(site_level="b", site_other_level="b"), 1.0)
    assert correlation.sel(site_level="a", site_other_level="b").mean() > 0.6
    assert data.unconstrained_posterior["latent_site"].dims[-2] == "site_level"
    np.testing.assert_allclose(data.sample_stats["lp"].values.ravel(), bayes.draws_.log_densities)
    assert float(data.posterior["mean"].mean()) == pytest.approx(Y.mean(), abs=3 * Y.std())
    np.testing.assert_allclose(data.observed_data["y"], Y)


def test_arviz_loo_is_the_models_leave_one_out(bayes):
    """elpd from ArviZ against the log density of y under the model's own weighted mixture."""
    found = arviz.loo(bayes.to_arviz(), pointwise=True)
    assert found.pareto_k.shape == (24,)
    loo = bayes.loo()
    approximate = stats.norm.logpdf(Y, loo["mean"], loo["sd"])
    # the mixture is nearly normal: densities agree loosely row by row, closely in sum
    assert found.elpd_loo == pytest.approx(approximate.sum(), abs=0.1 * abs(approximate.sum()) + 2)


def test_nuts_gives_the_same_answer(bayes):
    """|z| < 5 on 40 predictive means with the error of the worst quantity: odds below 1e-4."""
    nuts = regressor(sampler="nuts", warmup=300, draws=600, random_state=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        nuts.fit(X, Y)
    assert nuts.draws_.sampling.sampler == "nuts"
    assert len(nuts.diagnostics_.e_bfmi) == 4
    mean, sd = bayes.predict(NEW, return_std=True)
    other, _ = nuts.predict(NEW, return_std=True)
    least = min(m.diagnostics_.table["ess_bulk"].min() for m in (bayes, nuts))
    assert (np.abs(mean - other) < 5 * sd * np.sqrt(2 / least)).all()


def test_variational_says_what_it_is(vi):
    assert "variational approximation" in vi.diagnostics_.messages[0]
    assert np.isfinite(vi.diagnostics_.pareto_k)
    fit = vi.draws_.variational
    assert fit.settled
    assert fit.elbo[-1] > fit.elbo[0]
    assert vi.draws_.vectors.shape[0] > 900
    assert vi.optimization_ is not None


def test_variational_is_near_full_bayes(bayes, vi):
    mean, sd = bayes.predict(NEW, return_std=True)
    other, other_sd = vi.predict(NEW, return_std=True)
    assert (np.abs(mean - other) < 1.5 * sd).all()
    assert 0.5 < np.median(other_sd / sd) < 2


def test_parameters_of_many_draws_are_means_without_latents(bayes):
    parameters = bayes.parameters_
    assert set(parameters) == {"mean", "signal_sd", "noise_sd", "lengthscales", "latent_precision"}
    assert parameters["noise_sd"] == pytest.approx(0.1, rel=0.6)


def test_clone_of_a_fit_keeps_its_options(bayes):
    from sklearn.base import clone

    assert clone(bayes).get_params() == bayes.get_params()


OPTIONS = {
    "sampler": ({"sampler": "gibbs"}, "sampler: expected one of 'auto', 'microcanonical', 'nuts'"),
    "chains": ({"chains": 0}, "chains: expected a positive integer, got 0"),
    "warmup": ({"warmup": 3}, "warmup: expected an integer of at least 20, got 3"),
    "draws": ({"draws": 2.5}, "draws: expected an integer of at least 10, got 2.5"),
    "accept": ({"target_accept": 1.0}, "target_accept: expected a number from 0.5 to below 1"),
    "time": ({"time_limit": -1}, "time_limit: expected a positive number of seconds, got -1"),
    "converge": ({"converge": "maps"}, "converge: expected one of 'all', 'predictions'"),
    "seed": ({"random_state": True}, "random_state: expected a non-negative integer"),
    "kernel": ({"kernel": np.array(["rbf", "rbf"])}, "kernel: expected one of"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_wrong_option_says_which_and_what_to_give(case):
    options, message = OPTIONS[case]
    with pytest.raises(InputError, match=message):
        regressor(**options).fit(X, Y)


def test_no_categories_and_only_categories_both_work():
    short = {"warmup": 100, "draws": 200, "levels": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        numeric = regressor(**short).fit(X[["heat"]], Y)
        category = regressor(**short).fit(X[["site"]], Y)
    assert numeric.diagnostics_.maps == "ok"
    assert np.isfinite(numeric.predict(NEW[["heat"]])).all()
    means = category.predict(pd.DataFrame({"site": list("abcd")}))
    assert means[3] > means[2] > means[0]


def test_latent_map_of_a_fit(bayes):
    found = bayes.latent_map("site")
    again = bayes.latent_map("site")
    np.testing.assert_array_equal(found.coordinates, again.coordinates)
    assert list(found.levels) == list(bayes.space_.qualitative[0].levels)
    assert found.observations["empty"] == 0
    assert len(found.draws) == len(bayes.posterior_.kept)


@pytest.mark.parametrize("column", ["half", "heat", "nowhere", 3])
def test_columns_without_latents_have_no_map(bayes, column):
    with pytest.raises(InputError, match="has no latent map: only categories with three levels"):
        bayes.latent_map(column)
