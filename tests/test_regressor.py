"""LVGPRegressor from the outside: what it refuses, what it returns, what it leaves alone."""

import copy
import pickle
import re
import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lvgp import LVGPRegressor, Priors
from lvgp.errors import DataWarning, InputError, LVGPError, LVGPWarning, PlugInIntervalWarning

pytestmark = pytest.mark.filterwarnings("error::lvgp.errors.LVGPWarning")

EFFECT = {"p": 0.0, "q": 0.3, "r": 1.5, "s": 2.0}
KERNELS = {
    "rbf": lambda d: np.exp(-(d**2) / 2),
    "matern52": lambda d: (1 + np.sqrt(5) * d + 5 * d**2 / 3) * np.exp(-np.sqrt(5) * d),
    "matern32": lambda d: (1 + np.sqrt(3) * d) * np.exp(-np.sqrt(3) * d),
}


def regressor(**options):
    return LVGPRegressor(
        **{"method": "map", "restarts": 2, "random_state": 0, "progress": False, **options}
    )


def table(rows, seed):
    """Return a numeric column, one with four levels, one with two, and a smooth response."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "a": rng.uniform(2.0, 12.0, rows),
            "m": rng.permutation(np.resize(list("pqrs"), rows)),
            "b": rng.permutation(np.resize(["u", "v"], rows)),
        },
        index=[f"r{row}" for row in range(rows)],
    )
    y = 10 + np.sin(X["a"] / 3) + X["m"].map(EFFECT) + 0.4 * (X["b"] == "v") * X["a"] / 12
    return X, y.rename("G") + rng.normal(0, 0.05, rows)


# 24 rows, and tests that leave some out keep 17 or more: all share one compiled program
X, Y = table(24, seed=0)
NEW, NEW_Y = table(9, seed=1)


@pytest.fixture(scope="module")
def model():
    return regressor().fit(X, Y)


@pytest.fixture(scope="module")
def numeric_model():
    return regressor().fit(X[["a"]], Y)


def interval(model, *args, **options):
    """Return predict_interval with its warning taken note of."""
    with pytest.warns(PlugInIntervalWarning):
        return model.predict_interval(*args, **options)


def quantiles(model, *args, **options):
    with pytest.warns(PlugInIntervalWarning):
        return model.predict_quantiles(*args, **options)


def fitted_attributes(estimator):
    """Return the names of all that a fit has set, public and private."""
    return set(vars(estimator)) - set(estimator.get_params())


# -- bad input to fit ------------------------------------------------------------------------------


def cell(row, column, value):
    """Return X with one cell changed."""
    changed = X.astype({column: object})
    changed.at[row, column] = value
    return changed


def response(row, value):
    changed = Y.astype(object)
    changed[row] = value
    return changed


BAD_TABLES = {
    "NaN": (cell("r3", "a", np.nan), Y, {}, r"column 'a'.*row r3 \(1 of 24\)"),
    "infinity": (cell("r3", "a", -np.inf), Y, {}, r"column 'a'.*row r3 \(1 of 24\)"),
    "missing level": (cell("r5", "m", None), Y, {}, r"column 'm'.*row r5 \(1 of 24\)"),
    "list in a cell": (cell("r2", "m", ["p"]), Y, {}, r"column 'm', row 'r2'.*\['p'\]"),
    "dictionary in a cell": (cell("r2", "m", {}), Y, {}, r"column 'm', row 'r2'.*\{\}"),
    "text among numbers": (
        cell("r4", "a", "n/a"),
        Y,
        {"categorical": ["m", "b"]},
        r"column 'a'.*'n/a' in row r4",
    ),
    "dates": (X.assign(d=pd.date_range("2020-01-01", periods=24)), Y, {}, "column 'd': dates"),
    "complex numbers": (X.assign(a=X["a"] + 1j), Y, {}, "column 'a'|[Cc]omplex"),
    "repeated names": (X.set_axis(["a", "m", "a"], axis=1), Y, {}, r"more than once: \['a'\]"),
    "no columns": (X.iloc[:, :0], Y, {}, "0 feature"),
    "1-d": (X["a"].to_numpy(), Y, {}, "Reshape your data"),
    "series": (X["a"], Y, {}, "to_frame"),
    "sparse": (sparse.csr_array(np.eye(24)), Y, {}, "toarray"),
    "two rows": (X.iloc[:2], Y.iloc[:2], {}, "at least 3 rows.*2"),
    "no rows": (X.iloc[:0], Y.iloc[:0], {}, "at least 3 rows.*0"),
    "undeclared level": (
        X,
        Y,
        {"levels": {"m": list("pqr")}},
        r"column 'm': unknown level 's'.*Known levels: 'p', 'q', 'r'",
    ),
}
BAD_RESPONSES = {
    "NaN": (response("r7", np.nan), r"y \('G'\).*row r7 \(1 of 24\)"),
    "infinity": (response("r7", np.inf), r"y \('G'\).*row r7 \(1 of 24\)"),
    "text in a row": (response("r7", "high"), r"y \('G'\).*'high'.*row '?r7"),
    "text": (X["m"], r"y \('m'\).*expected numbers"),
    "constant": (Y * 0 + 2.5, r"y \('G'\): is constant \(2.5 in every row\)"),
    "too short": (Y.iloc[:-1], "got 23 for 24 rows"),
    "two columns": (pd.DataFrame({"G": Y, "H": Y}), r"1-d array.*\(24, 2\)"),
    "complex": (Y + 1j, "[Cc]omplex"),
    "none": (None, "y is None"),
}
BAD_OPTIONS = {
    "method": ({"method": "mcmc"}, "method: expected one of 'bayes', 'vi', 'map', 'mle'.*'mcmc'"),
    "kernel": ({"kernel": "cubic"}, "kernel: expected one of 'rbf'.*'matern32', got 'cubic'"),
    "no kernel": ({"kernel": None}, "kernel: expected one of.*got None"),
    "approximation": ({"approximation": "nystrom"}, "approximation: .*'fitc', 'vfe'.*'nystrom'"),
    "unknown_levels": ({"unknown_levels": "ignore"}, "unknown_levels: .*'error'.*'ignore'"),
    "no restarts": ({"restarts": 0}, "restarts: expected a positive integer, got 0"),
    "half restarts": ({"restarts": 1.5}, "restarts: expected a positive integer, got 1.5"),
    "restarts text": ({"restarts": "2"}, "restarts: expected a positive integer, got '2'"),
    "restarts bool": ({"restarts": True}, "restarts: expected a positive integer, got True"),
    "preset": ({"priors": "vague"}, "priors: .*'paper', 'noisy', got 'vague'"),
    "no priors": ({"priors": None}, "priors: .*got None"),
    "alpha": ({"priors": Priors(alpha=1.0)}, r"priors\.alpha: .*above 1.*got 1.0"),
    "noise floor": ({"priors": Priors(noise_floor=-1.0)}, r"priors\.noise_floor: .*got -1.0"),
    "mean_sd": ({"priors": Priors(mean_sd=np.nan)}, r"priors\.mean_sd: .*positive.*got nan"),
    "noise_scale": ({"priors": Priors(noise_scale=0.0)}, r"priors\.noise_scale: .*got 0.0"),
    "lengthscales": (
        {"priors": Priors(lengthscale_low=2.0, lengthscale_high=1.0)},
        r"priors\.lengthscale_high: .*above lengthscale_low, got 1.0",
    ),
    "infinite prior": (
        {"priors": Priors(log_variance_mean=np.inf)},
        r"priors\.log_variance_mean: .*finite.*got inf",
    ),
    "prior text": ({"priors": Priors(alpha="two")}, r"priors\.alpha: .*got 'two'"),
    "prior none": ({"priors": Priors(noise_floor=None)}, r"priors\.noise_floor: .*got None"),
    "latent_dim zero": ({"latent_dim": 0}, "latent_dim: column 'm'.*integer.*got 0"),
    "latent_dim half": ({"latent_dim": 1.5}, "latent_dim: column 'm'.*integer.*got 1.5"),
    "latent_dim text": ({"latent_dim": "2"}, "latent_dim: column 'm'.*integer.*got '2'"),
    "latent_dim of a column": (
        {"latent_dim": {"m": -1}},
        "latent_dim: column 'm'.*integer.*got -1",
    ),
    "latent_dim of no column": ({"latent_dim": {"n": 1}}, r"latent_dim: no column 'n'.*'a', 'm'"),
    "latent_dim of numbers": ({"latent_dim": {"a": 1}}, "latent_dim: column 'a'"),
    "categorical": ({"categorical": ["n"]}, "categorical: no column 'n'"),
    "categorical text": ({"categorical": "m"}, r"categorical: .*\['m'\]"),
    "levels": ({"levels": {"n": ["a"]}}, "levels: no column 'n'"),
    "levels twice": ({"levels": {"m": list("pqrsp")}}, "levels: column 'm'.*twice"),
    "bounds": ({"bounds": {"n": (0, 1)}}, "bounds: no column 'n'"),
    "bounds order": ({"bounds": {"a": (12, 2)}}, r"bounds: column 'a'.*\(12, 2\)"),
    "bounds of categories": ({"bounds": {"m": (0, 1)}}, "bounds: column 'm'"),
    "seed text": ({"random_state": "zero"}, "random_state: .*'zero'"),
    "seed negative": ({"random_state": -1}, "random_state: .*-1"),
}
BAD_FITS = (
    {f"X, {case}": values for case, values in BAD_TABLES.items()}
    | {f"y, {case}": (X, y, {}, message) for case, (y, message) in BAD_RESPONSES.items()}
    | {f"option, {case}": (X, Y, *values) for case, values in BAD_OPTIONS.items()}
)


@pytest.mark.parametrize("case", BAD_FITS)
def test_bad_input_is_refused_and_leaves_no_trace(case):
    bad_X, bad_y, options, message = BAD_FITS[case]
    estimator = regressor(**options)
    with pytest.raises(InputError, match=message):
        estimator.fit(bad_X, bad_y)
    assert fitted_attributes(estimator) == set()
    with pytest.raises(NotFittedError):
        estimator.predict(X)


@pytest.mark.parametrize("case", BAD_FITS)
def test_failed_refit_leaves_the_fitted_model_as_it_was(case, model):
    bad_X, bad_y, options, _ = BAD_FITS[case]
    refitted = copy.deepcopy(model).set_params(**options)
    before = {name: getattr(refitted, name) for name in fitted_attributes(refitted)}
    with pytest.raises(ValueError):  # noqa: PT011 - the message is the other test's concern
        refitted.fit(bad_X, bad_y)
    assert fitted_attributes(refitted) == set(before)
    assert all(getattr(refitted, name) is value for name, value in before.items())
    np.testing.assert_array_equal(refitted.predict(NEW), model.predict(NEW))


def test_warning_turned_into_an_error_leaves_no_trace():
    estimator = regressor(latent_dim=9)
    with pytest.raises(DataWarning):
        estimator.fit(X, Y)
    assert fitted_attributes(estimator) == set()


def test_fit_leaves_its_arguments_alone():
    table, y = X.astype({"m": "category"}), Y.copy()
    before = table.copy(deep=True), y.copy(deep=True)
    regressor(categorical=["m", "b"], bounds={"a": (0, 20)}).fit(table, y)
    pd.testing.assert_frame_equal(table, before[0])
    pd.testing.assert_series_equal(y, before[1])


@pytest.mark.parametrize("scale", [1e160, 1e300, 1e-160, 1e-300])
def test_extreme_response_is_refused_or_modelled_but_never_nan(scale, model):
    """The squares of such numbers overflow or lose their digits in double precision."""
    estimator = regressor()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            estimator.fit(X, Y * scale)
        except InputError as error:
            assert str(error).startswith("y")  # noqa: PT017 - either outcome is right
        else:
            np.testing.assert_allclose(estimator.predict(NEW) / scale, model.predict(NEW), 1e-6)


# -- bad input to predictions ----------------------------------------------------------------------

ASKED = {
    "predict": lambda model, X: model.predict(X),
    "return_std": lambda model, X: model.predict(X, return_std=True),
    "return_cov": lambda model, X: model.predict(X, return_cov=True),
    "predict_interval": lambda model, X: model.predict_interval(X),
    "predict_quantiles": lambda model, X: model.predict_quantiles(X, [0.1, 0.9]),
    "sample_y": lambda model, X: model.sample_y(X, 2),
    "score": lambda model, X: model.score(X, NEW_Y),
}
BAD_NEW_TABLES = {
    "missing column": (NEW.drop(columns="m"), r"missing \['m'\]; expected \['a', 'm', 'b'\]"),
    "extra column": (NEW.assign(extra=1.0), r"not expected \['extra'\]"),
    "renamed column": (NEW.rename(columns={"m": "M"}), r"missing \['m'\] and not expected \['M'\]"),
    "unknown level": (
        NEW.assign(m=["p", "q", "x", "p", "y", "x", "r", "s", "p"]),
        r"column 'm': unknown levels 'x', 'y' in rows r2, r4, r5\. "
        r"Known levels: 'p', 'q', 'r', 's'\.",
    ),
    "unknown of two levels": (NEW.assign(b="w"), r"column 'b': unknown level 'w'.*'u', 'v'"),
    "NaN": (NEW.assign(a=[1, np.nan, *range(7)]), r"column 'a'.*row r1 \(1 of 9\)"),
    "infinity": (NEW.assign(a=[1, *range(7), np.inf]), r"column 'a'.*row r8 \(1 of 9\)"),
    "missing level": (NEW.assign(m=[None, *"pqrspqrs"]), r"column 'm'.*row r0 \(1 of 9\)"),
    "text for a number": (NEW.assign(a="high"), r"column 'a': expected numbers, got 'high'"),
    "dates for a number": (NEW.assign(a=pd.date_range("2020-01-01", periods=9)), "column 'a'"),
    "fewer columns in an array": (NEW.to_numpy()[:, :2], "2 features, but .* expecting 3"),
    "1-d": (NEW["a"].to_numpy(), "Reshape your data"),
}


@pytest.mark.parametrize("case", BAD_NEW_TABLES)
@pytest.mark.parametrize("asked", ASKED)
def test_bad_table_is_refused_at_prediction(asked, case, model):
    bad, message = BAD_NEW_TABLES[case]
    with pytest.raises(InputError, match=message):
        ASKED[asked](model, bad)


@pytest.mark.parametrize("asked", ASKED)
def test_unfitted_model_does_not_predict(asked):
    with pytest.raises(NotFittedError):
        ASKED[asked](regressor(), NEW)


def test_unfitted_model_has_no_parameters():
    with pytest.raises(NotFittedError):
        _ = regressor().parameters_


BAD_REQUESTS = {
    "std and cov": (lambda m: m.predict(NEW, return_std=True, return_cov=True), "return_cov"),
    "coverage 0": (lambda m: m.predict_interval(NEW, 0), "coverage: .*got 0"),
    "coverage 1": (lambda m: m.predict_interval(NEW, 1.0), "coverage: .*got 1.0"),
    "coverage 95": (lambda m: m.predict_interval(NEW, 95), "coverage: .*got 95"),
    "coverage NaN": (lambda m: m.predict_interval(NEW, np.nan), "coverage: .*got nan"),
    "coverage text": (lambda m: m.predict_interval(NEW, "95%"), "coverage: .*got '95%'"),
    "coverage none": (lambda m: m.predict_interval(NEW, None), "coverage: .*got None"),
    "quantile 0": (lambda m: m.predict_quantiles(NEW, [0.0, 0.5]), r"quantiles: .*\[0.0, 0.5\]"),
    "quantile 1": (lambda m: m.predict_quantiles(NEW, [0.5, 1]), r"quantiles: .*\[0.5, 1\]"),
    "quantile NaN": (lambda m: m.predict_quantiles(NEW, [np.nan]), r"quantiles: .*nan"),
    "quantile text": (lambda m: m.predict_quantiles(NEW, "median"), "quantiles: .*'median'"),
    "quantiles 2-d": (lambda m: m.predict_quantiles(NEW, [[0.1, 0.9]]), "quantiles: "),
    "no samples": (lambda m: m.sample_y(NEW, 0), "n_samples: .*got 0"),
    "half samples": (lambda m: m.sample_y(NEW, 2.5), "n_samples: .*got 2.5"),
    "samples text": (lambda m: m.sample_y(NEW, "many"), "n_samples: .*got 'many'"),
    "seed text": (lambda m: m.sample_y(NEW, 1, random_state="zero"), "random_state: .*'zero'"),
    "seed negative": (lambda m: m.sample_y(NEW, 1, random_state=-1), "random_state: .*-1"),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_bad_request_is_refused(case, model):
    ask, message = BAD_REQUESTS[case]
    with pytest.raises(InputError, match=message):
        ask(model)


def test_every_error_and_warning_has_the_common_base():
    with pytest.raises(LVGPError):
        regressor(kernel="cubic").fit(X, Y)
    assert issubclass(PlugInIntervalWarning, LVGPWarning)
    assert issubclass(DataWarning, LVGPWarning)


# -- predictions -----------------------------------------------------------------------------------


def test_predictions_are_good(model):
    """The table is smooth with noise of sd 0.05 and a spread of about 1."""
    assert r2_score(NEW_Y, model.predict(NEW)) > 0.9
    assert np.abs(model.predict(X) - Y).max() < 0.3


def test_shapes(model):
    mean, sd = model.predict(NEW, return_std=True)
    assert mean.shape == sd.shape == (9,)
    assert mean.dtype == sd.dtype == np.float64
    assert (sd > 0).all()
    np.testing.assert_array_equal(model.predict(NEW), mean)


def test_sd_and_covariance_agree(model):
    mean, sd = model.predict(NEW, return_std=True)
    joint_mean, covariance = model.predict(NEW, return_cov=True)
    assert covariance.shape == (9, 9)
    np.testing.assert_allclose(joint_mean, mean, rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), sd, rtol=1e-6)
    np.testing.assert_allclose(covariance, covariance.T, rtol=0, atol=1e-12)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9


def test_no_rows_give_no_predictions(model):
    none = NEW.iloc[:0]
    assert model.predict(none).shape == (0,)
    assert model.predict(none, return_cov=True)[1].shape == (0, 0)
    assert interval(model, none).shape == (0, 3)
    assert quantiles(model, none, [0.5]).shape == (0, 1)
    assert model.sample_y(none, 2).shape == (0, 2)


def test_rows_are_predicted_on_their_own(model):
    """Also across the chunks that long tables go through in."""
    long = pd.concat([NEW] * 250, ignore_index=True)
    mean, sd = model.predict(long, return_std=True)
    expected_mean, expected_sd = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, np.tile(expected_mean, 250), rtol=1e-12)
    np.testing.assert_allclose(sd, np.tile(expected_sd, 250), rtol=1e-8)
    one = [model.predict(NEW.iloc[[row]])[0] for row in range(9)]
    np.testing.assert_allclose(one, expected_mean, rtol=1e-12)


def test_far_away_the_prediction_is_the_mean_of_the_process(model):
    parameters = model.parameters_
    mean, sd = model.predict(NEW.assign(a=1e6), return_std=True)
    np.testing.assert_allclose(mean, parameters["mean"], rtol=1e-10)
    assert (sd >= parameters["signal_sd"]).all()


def test_interval_is_a_frame_with_the_index_of_the_table(model):
    frame = interval(model, NEW)
    assert list(frame.columns) == ["mean", "lower", "upper"]
    pd.testing.assert_index_equal(frame.index, NEW.index)
    assert (frame["lower"] < frame["mean"]).all()
    assert (frame["mean"] < frame["upper"]).all()
    np.testing.assert_array_equal(frame["mean"], model.predict(NEW))


def test_index_may_have_repeated_labels_or_be_missing(model):
    repeated = interval(model, NEW.set_axis(["same"] * 9))
    assert list(repeated.index) == ["same"] * 9
    with pytest.warns(UserWarning, match="feature names"):
        from_array = interval(model, NEW.to_numpy(dtype=object))
    pd.testing.assert_index_equal(from_array.index, pd.RangeIndex(9))
    np.testing.assert_array_equal(repeated.to_numpy(), from_array.to_numpy())


def test_intervals_are_nested(model):
    frames = [interval(model, NEW, coverage) for coverage in (0.01, 0.5, 0.9, 0.95, 0.999)]
    for inner, outer in pairwise(frames):
        assert (outer["lower"] < inner["lower"]).all()
        assert (inner["upper"] < outer["upper"]).all()


@pytest.mark.parametrize("coverage", [0.5, 0.95])
@pytest.mark.parametrize("include_noise", [False, True])
def test_plug_in_intervals_are_those_of_a_normal_distribution(coverage, include_noise, model):
    mean, sd = model.predict(NEW, return_std=True)
    noise = model.parameters_["noise_sd"] if include_noise else 0.0
    half = stats.norm.ppf(0.5 + coverage / 2) * np.sqrt(sd**2 + noise**2)
    frame = interval(model, NEW, coverage, include_noise=include_noise)
    np.testing.assert_allclose(frame["lower"], mean - half, rtol=1e-9)
    np.testing.assert_allclose(frame["upper"], mean + half, rtol=1e-9)


def test_noise_widens_the_intervals(model):
    narrow, wide = (interval(model, NEW, include_noise=noise) for noise in (False, True))
    assert model.parameters_["noise_sd"] > 0
    assert (wide["lower"] < narrow["lower"]).all()
    assert (wide["upper"] > narrow["upper"]).all()
    np.testing.assert_array_equal(wide["mean"], narrow["mean"])


def test_quantiles_are_a_frame_in_the_order_asked_for(model):
    frame = quantiles(model, NEW, [0.975, 0.5, 0.025])
    assert list(frame.columns) == [0.975, 0.5, 0.025]
    pd.testing.assert_index_equal(frame.index, NEW.index)
    ends = interval(model, NEW, 0.95)
    np.testing.assert_allclose(frame[0.025], ends["lower"], rtol=1e-12)
    np.testing.assert_allclose(frame[0.975], ends["upper"], rtol=1e-12)
    assert list(quantiles(model, NEW, 0.5).columns) == [0.5]
    assert list(quantiles(model, NEW, np.array([0.1, 0.2])).columns) == [0.1, 0.2]


@pytest.mark.parametrize("include_noise", [False, True])
def test_median_of_a_plug_in_fit_is_the_mean(include_noise, model):
    frame = quantiles(model, NEW, [0.5], include_noise=include_noise)
    np.testing.assert_allclose(frame[0.5], model.predict(NEW), rtol=1e-12)


def test_samples_have_a_shape_and_a_seed(model):
    assert model.sample_y(NEW).shape == (9, 1)
    samples = model.sample_y(NEW, 5, random_state=3)
    assert samples.shape == (9, 5)
    assert len(np.unique(samples)) == 45
    np.testing.assert_array_equal(model.sample_y(NEW, 5, random_state=3), samples)
    assert not (model.sample_y(NEW, 5, random_state=4) == samples).any()
    assert not (model.sample_y(NEW, 5) == model.sample_y(NEW, 5)).any()
    states = [np.random.RandomState(8), np.random.RandomState(8)]
    first, second = (model.sample_y(NEW, 5, random_state=state) for state in states)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("include_noise", [False, True])
def test_samples_have_the_moments_of_the_prediction(include_noise, model):
    """20 000 samples; 5 standard errors on 9 means and 45 covariances: false alarms below 4e-5."""
    size = 20_000
    samples = model.sample_y(NEW, size, random_state=0, include_noise=include_noise)
    mean, covariance = model.predict(NEW, return_cov=True)
    covariance = covariance + include_noise * model.parameters_["noise_sd"] ** 2 * np.eye(9)
    variances = np.diag(covariance)
    errors = (samples.mean(axis=1) - mean) / np.sqrt(variances / size)
    assert np.abs(errors).max() < 5
    spread = np.sqrt((np.outer(variances, variances) + covariance**2) / (size - 1))
    errors = (np.cov(samples) - covariance) / spread
    assert np.abs(errors).max() < 5


def test_samples_at_repeated_rows_are_the_same(model):
    samples = model.sample_y(pd.concat([NEW, NEW]), 20, random_state=0)
    sd = model.predict(NEW, return_std=True)[1][:, None]
    assert (np.abs(samples[:9] - samples[9:]) < 1e-5 * sd).all()


def test_score_is_r_squared(model):
    assert model.score(NEW, NEW_Y) == r2_score(NEW_Y, model.predict(NEW))


# -- warnings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["predict_interval", "predict_quantiles"])
@pytest.mark.parametrize("method", ["map", "mle"])
def test_intervals_of_a_plug_in_fit_are_warned_of(asked, method):
    fitted = regressor(method=method).fit(X, Y)
    with pytest.warns(PlugInIntervalWarning, match=f'method="{method}".*too narrow.*"bayes"'):
        ASKED[asked](fitted, NEW)


@pytest.mark.parametrize("asked", ASKED)
def test_no_warning_without_latents(asked, numeric_model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ASKED[asked](numeric_model, NEW[["a"]])


@pytest.mark.parametrize("asked", ["predict", "return_std", "return_cov", "sample_y", "score"])
def test_no_warning_without_intervals(asked, model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ASKED[asked](model, NEW)


def fit_with_constant(model):
    with pytest.warns(DataWarning):
        return regressor().fit(X.assign(c=1.0), Y)


WARNED = {
    "constant column": lambda model: regressor().fit(X.assign(c=1.0), Y),
    "one level": lambda model: regressor().fit(X.assign(c="k"), Y),
    "outside the bounds": lambda model: regressor(bounds={"a": (3, 11)}).fit(X, Y),
    "latent_dim": lambda model: regressor(latent_dim=9).fit(X, Y),
    "plug-in interval": lambda model: model.predict_interval(NEW),
    "plug-in quantiles": lambda model: model.predict_quantiles(NEW, [0.5]),
    "array for names": lambda model: model.predict(NEW.to_numpy(dtype=object)),
    "other value of a constant": lambda model: fit_with_constant(model).predict(NEW.assign(c=2.0)),
}


@pytest.mark.parametrize("case", WARNED)
def test_warnings_point_at_the_callers_line(case, model):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        WARNED[case](model)
    assert [warning.filename for warning in caught] == [__file__]


# -- seeds and scales ------------------------------------------------------------------------------


def test_same_seed_gives_the_same_fit(model):
    again = regressor().fit(X, Y)
    np.testing.assert_array_equal(again.draws_.vectors, model.draws_.vectors)
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))


def test_order_of_columns_at_prediction_does_not_matter(model):
    expected = model.predict(NEW)
    for order in (["m", "a", "b"], ["b", "m", "a"]):
        np.testing.assert_array_equal(model.predict(NEW[order]), expected)


@pytest.mark.parametrize("state", [None, 7, np.int64(7), "RandomState"])
def test_fit_is_repeated_by_its_seed(state):
    state = np.random.RandomState(7) if state == "RandomState" else state
    first = regressor(random_state=state).fit(X, Y)
    assert isinstance(first.seed_, int)
    second = regressor(random_state=first.seed_).fit(X, Y)
    assert second.seed_ == first.seed_
    np.testing.assert_array_equal(second.draws_.vectors, first.draws_.vectors)


def test_other_seeds_start_elsewhere(model):
    other = regressor(random_state=1).fit(X, Y)
    assert not np.array_equal(other.draws_.vectors, model.draws_.vectors)


@pytest.mark.parametrize(
    ("scale", "shift"), [(1000.0, 0.0), (1e-6, 0.0), (-3.0, 50.0), (1e9, -7e9)]
)
def test_predictions_follow_the_scale_of_the_response(scale, shift, model):
    """Exactly, but for the last digit of the response: the search ends within its tolerance."""
    scaled = regressor().fit(X, scale * Y + shift)
    mean, sd = model.predict(NEW, return_std=True)
    scaled_mean, scaled_sd = scaled.predict(NEW, return_std=True)
    np.testing.assert_allclose(scaled_mean, scale * mean + shift, rtol=1e-8)
    np.testing.assert_allclose(scaled_sd, abs(scale) * sd, rtol=1e-6)
    for name in ("signal_sd", "noise_sd"):
        expected = abs(scale) * model.parameters_[name]
        np.testing.assert_allclose(scaled.parameters_[name], expected, rtol=1e-6)
    np.testing.assert_allclose(
        scaled.parameters_["mean"], scale * model.parameters_["mean"] + shift, rtol=1e-8
    )


def test_predictions_do_not_depend_on_the_units_of_a_column(model):
    scaled = regressor().fit(X.assign(a=1000 * X["a"] + 5), Y)
    prediction = scaled.predict(NEW.assign(a=1000 * NEW["a"] + 5))
    np.testing.assert_allclose(prediction, model.predict(NEW), rtol=1e-8)
    lengthscale = 1000 * model.parameters_["lengthscales"]["a"]
    np.testing.assert_allclose(scaled.parameters_["lengthscales"]["a"], lengthscale, rtol=1e-6)


# -- columns ---------------------------------------------------------------------------------------


def test_names_of_the_levels_do_not_matter(model):
    """Levels in the same order under other names, as text, numbers or a category."""
    codes = {"p": 0, "q": 1, "r": 2, "s": 3}
    named = regressor().fit(X.replace({"m": {level: f"z{level}" for level in codes}}), Y)
    prediction = named.predict(NEW.replace({"m": {level: f"z{level}" for level in codes}}))
    np.testing.assert_array_equal(prediction, model.predict(NEW))
    numbered = regressor(categorical=["m", "b"]).fit(X.assign(m=X["m"].map(codes)), Y)
    prediction = numbered.predict(NEW.assign(m=NEW["m"].map(codes)))
    np.testing.assert_array_equal(prediction, model.predict(NEW))


def test_category_at_prediction_goes_by_its_levels_and_not_by_its_codes(model):
    m = pd.Categorical(NEW["m"], categories=["s", "x", "r", "q", "p"])
    np.testing.assert_array_equal(model.predict(NEW.assign(m=m)), model.predict(NEW))


def test_two_levels_are_the_same_model_as_zero_and_one(model):
    codes = {"u": 0.0, "v": 1.0}
    numeric = regressor().fit(X.assign(b=X["b"].map(codes)), Y)
    prediction = numeric.predict(NEW.assign(b=NEW["b"].map(codes)))
    np.testing.assert_array_equal(prediction, model.predict(NEW))


def test_constant_columns_change_nothing(model):
    with pytest.warns(DataWarning, match="single value") as caught:
        extended = regressor().fit(X.assign(c=1.0, k="only"), Y)
    assert len(caught) == 2
    assert extended.n_features_in_ == 5
    np.testing.assert_array_equal(extended.predict(NEW.assign(c=1.0, k="only")), model.predict(NEW))
    with pytest.warns(DataWarning, match="column 'c'.*1.0 in every training row"):
        prediction = extended.predict(NEW.assign(c=2.0, k="only"))
    np.testing.assert_array_equal(prediction, model.predict(NEW))
    with pytest.raises(InputError, match="column 'k': unknown level 'other'"):
        extended.predict(NEW.assign(c=1.0, k="other"))


def test_declared_level_without_rows_can_be_predicted_at():
    declared = regressor(levels={"m": [*"pqrs", "new"]}).fit(X, Y)
    mean, sd = declared.predict(NEW.assign(m="new"), return_std=True)
    assert np.isfinite(mean).all()
    assert (sd > 0).all()
    latents = declared.parameters_["latents"]["m"]
    # no row speaks for the level, so its latents are at the mode of their prior
    np.testing.assert_allclose(latents.loc["new"], 0.0, atol=1e-3)
    assert np.linalg.norm(latents.drop("new"), axis=1).min() > 0.01
    categories = pd.Categorical(X["m"], categories=[*"pqrs", "new"])
    same = regressor().fit(X.assign(m=categories), Y)
    np.testing.assert_array_equal(same.predict(NEW.assign(m="new")), mean)


def test_table_of_categories_only():
    rng = np.random.default_rng(2)
    grid = pd.MultiIndex.from_product([list("pqrs"), list("klmno")], names=["m", "n"])
    table = grid.to_frame(index=False)
    y = table["m"].map(EFFECT) + table["n"].map(dict(zip("klmno", range(5), strict=True)))
    chosen = rng.permutation(20)[:17]
    fitted = regressor(restarts=3).fit(table.iloc[chosen], y.iloc[chosen])
    assert fitted.parameters_["lengthscales"] == {}
    rest = np.setdiff1d(np.arange(20), chosen)
    error = fitted.predict(table.iloc[rest]) - y.iloc[rest]
    assert np.abs(error).max() < 0.25 * y.std()


def test_fit_to_a_frame_then_predict_from_an_array(model):
    with pytest.warns(UserWarning, match="does not have valid feature names, but LVGPRegressor"):
        prediction = model.predict(NEW.to_numpy(dtype=object))
    np.testing.assert_array_equal(prediction, model.predict(NEW))


def test_fit_to_an_array_then_predict_from_a_frame(model):
    fitted = regressor().fit(X.to_numpy(dtype=object), Y.to_numpy())
    assert not hasattr(fitted, "feature_names_in_")
    np.testing.assert_array_equal(fitted.predict(NEW.to_numpy(dtype=object)), model.predict(NEW))
    with pytest.warns(UserWarning, match="LVGPRegressor was fitted without feature names"):
        prediction = fitted.predict(NEW)
    np.testing.assert_array_equal(prediction, model.predict(NEW))
    assert list(fitted.parameters_["latents"]) == ["x1"]


def test_columns_of_an_array_are_declared_by_position(model):
    codes = {"p": 0, "q": 1, "r": 2, "s": 3}
    array, new = (
        table.assign(m=table["m"].map(codes), b=table["b"] == "v").to_numpy(dtype=float)
        for table in (X, NEW)
    )
    fitted = regressor(categorical=[1], latent_dim={1: 2}).fit(array, Y)
    np.testing.assert_array_equal(fitted.predict(new), model.predict(NEW))


def test_names_of_features_follow_the_last_fit():
    fitted = regressor().fit(X, Y)
    assert list(fitted.feature_names_in_) == ["a", "m", "b"]
    assert fitted.n_features_in_ == 3
    fitted.fit(X[["a"]].to_numpy(), Y)
    assert not hasattr(fitted, "feature_names_in_")
    assert fitted.n_features_in_ == 1


def test_response_goes_by_position_and_not_by_index(model):
    shuffled = Y.set_axis(Y.index[::-1])
    np.testing.assert_array_equal(regressor().fit(X, shuffled).predict(NEW), model.predict(NEW))


# -- parameters ------------------------------------------------------------------------------------


def textbook(parameters, kernel, mean_sd):
    """Return mean and sd of f at NEW by the textbook, in the units of the table."""

    def points(table):
        scaled = [
            table["a"] / parameters["lengthscales"]["a"],
            (table["b"] == "v") / parameters["lengthscales"]["b"],
        ]
        return np.column_stack([*scaled, parameters["latents"]["m"].loc[table["m"]]])

    def covariance(left, right):
        distances = np.linalg.norm(left[:, None] - right[None], axis=-1)
        return parameters["signal_sd"] ** 2 * KERNELS[kernel](distances)

    total = covariance(points(X), points(X)) + parameters["noise_sd"] ** 2 * np.eye(len(X))
    cross = covariance(points(X), points(NEW))
    solved, ones = np.linalg.solve(total, cross), np.linalg.solve(total, np.ones(len(X)))
    # the mean of the process: prior N(mean of y, (mean_sd * sd of y)^2), integrated out
    precision = ones.sum() + (mean_sd * Y.std()) ** -2
    mean = Y.mean() + ones @ (Y - Y.mean()) / precision
    np.testing.assert_allclose(parameters["mean"], mean, rtol=1e-8)
    variance = parameters["signal_sd"] ** 2 - np.sum(cross * solved, axis=0)
    variance += (1 - ones @ cross) ** 2 / precision
    return mean + (Y - mean) @ solved, np.sqrt(variance)


@pytest.mark.parametrize("kernel", KERNELS)
def test_parameters_are_those_of_the_predictions(kernel):
    priors = Priors(mean_sd=2.0, noise_scale=0.1)
    fitted = regressor(kernel=kernel, priors=priors).fit(X, Y)
    mean, sd = fitted.predict(NEW, return_std=True)
    expected_mean, expected_sd = textbook(fitted.parameters_, kernel, mean_sd=2.0)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-8)
    np.testing.assert_allclose(sd, expected_sd, rtol=1e-5)
    assert fitted.priors_ == priors


def test_parameters_have_the_names_of_the_table(model):
    parameters = model.parameters_
    assert set(parameters) == {
        "mean",
        "signal_sd",
        "noise_sd",
        "lengthscales",
        "latent_precision",
        "latents",
    }
    assert all(type(parameters[name]) is float for name in ("mean", "signal_sd", "noise_sd"))
    assert list(parameters["lengthscales"]) == ["a", "b"]
    assert list(parameters["latent_precision"]) == ["m"]
    assert parameters["latent_precision"]["m"] > 0
    assert list(parameters["latents"]) == ["m"]
    assert list(parameters["latents"]["m"].index) == ["p", "q", "r", "s"]
    assert parameters["latents"]["m"].shape == (4, 2)


def test_alike_levels_are_close_in_the_latent_space(model):
    latents = model.parameters_["latents"]["m"]

    def distance(left, right):
        return np.linalg.norm(latents.loc[left] - latents.loc[right])

    assert distance("p", "q") < distance("p", "r")
    assert distance("r", "s") < distance("q", "s")


def test_parameters_of_a_numeric_table(numeric_model):
    parameters = numeric_model.parameters_
    assert list(parameters["lengthscales"]) == ["a"]
    assert parameters["latents"] == parameters["latent_precision"] == {}


def test_noise_floor_bounds_the_noise():
    fitted = regressor(priors=Priors(noise_floor=0.5)).fit(X, Y)
    assert fitted.parameters_["noise_sd"] >= np.sqrt(0.5) * Y.std() * (1 - 1e-12)


def test_presets_are_priors():
    by_name, by_value = (
        regressor(priors=priors).fit(X, Y) for priors in ("noisy", Priors(noise_scale=0.3))
    )
    np.testing.assert_array_equal(by_name.draws_.vectors, by_value.draws_.vectors)
    assert by_name.priors_ == by_value.priors_
    assert by_name.get_params()["priors"] == "noisy"


@pytest.mark.parametrize(
    ("latent_dim", "expected"), [(1, 1), ({"m": 1}, 1), ({}, 2), ({"m": 3}, 3), (np.int64(1), 1)]
)
def test_dimensions_of_the_latents(latent_dim, expected):
    fitted = regressor(latent_dim=latent_dim).fit(X, Y)
    assert fitted.parameters_["latents"]["m"].shape == (4, expected)
    assert np.isfinite(fitted.predict(NEW)).all()


@pytest.mark.parametrize("latent_dim", [4, 9, {"m": 5}])
def test_dimensions_of_the_latents_are_capped(latent_dim):
    asked = 5 if isinstance(latent_dim, dict) else latent_dim
    expected = f"latent_dim: column 'm' has 4 levels.*at most 3 dimensions; {asked} is lowered"
    with pytest.warns(DataWarning, match=expected):
        fitted = regressor(latent_dim=latent_dim).fit(X, Y)
    assert fitted.parameters_["latents"]["m"].shape == (4, 3)
    assert fitted.latent_dim == latent_dim
    same = regressor(latent_dim=3).fit(X, Y)
    np.testing.assert_array_equal(fitted.predict(NEW), same.predict(NEW))


def test_search_for_the_mode_is_reported():
    fitted = regressor(restarts=3).fit(X, Y)
    assert fitted.optimization_.starts == 3
    assert fitted.optimization_.failed == 0
    assert fitted.optimization_.reached >= 1
    assert fitted.optimization_.log_density == fitted.draws_.log_densities[0]
    assert len(fitted.draws_.vectors) == 1


# -- duplicate rows --------------------------------------------------------------------------------

DUPLICATES = {
    "rows twice": (pd.concat([X[:12], X[:12]]), pd.concat([Y[:12], Y[:12]])),
    "rows twice, other responses": (pd.concat([X[:12], X[:12]]), pd.concat([Y[:12], Y[12:]])),
    "one row many times": (X.iloc[[*range(4), *[0] * 20]], Y.iloc[[*range(4), *[0] * 20]]),
    "rows all but equal": (
        pd.concat([X[:12], X[:12].assign(a=X["a"][:12] + 1e-9)]),
        pd.concat([Y[:12], Y[:12]]),
    ),
}


@pytest.mark.parametrize("method", ["map", "mle"])
@pytest.mark.parametrize("case", DUPLICATES)
def test_duplicate_rows_without_a_noise_floor_give_numbers(case, method):
    table, y = DUPLICATES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        fitted = regressor(method=method, priors=Priors(noise_floor=0.0)).fit(table, y)
        ends = fitted.predict_interval(table)
    mean, sd = fitted.predict(table, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(sd).all()
    assert np.isfinite(ends.to_numpy()).all()
    assert np.isfinite(fitted.sample_y(table, 2, random_state=0)).all()
    assert np.isfinite(fitted.parameters_["noise_sd"])
    assert (np.abs(mean - y.mean()) < 5 * y.std()).all()


def test_three_rows_are_enough():
    fitted = regressor().fit(X[["a"]].iloc[:3], Y.iloc[:3])
    mean, sd = fitted.predict(NEW[["a"]], return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(sd).all()


# -- scikit-learn ----------------------------------------------------------------------------------


@pytest.mark.parametrize("used", [False, True])
def test_pickled_model_predicts_the_same(used):
    fitted = regressor().fit(X, Y)
    if used:
        fitted.predict(X)
    restored = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(restored.predict(NEW), fitted.predict(NEW))
    np.testing.assert_array_equal(
        restored.predict(NEW, return_cov=True)[1], fitted.predict(NEW, return_cov=True)[1]
    )
    pd.testing.assert_frame_equal(interval(restored, NEW), interval(fitted, NEW))
    assert restored.get_params() == fitted.get_params()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copied_model_predicts_the_same(copied, model):
    np.testing.assert_array_equal(copied(model).predict(NEW), model.predict(NEW))


def test_clone_is_unfitted_with_the_same_options():
    options = {
        "kernel": "matern52",
        "latent_dim": {"m": 1},
        "levels": {"m": list("pqrs")},
        "bounds": {"a": (0, 20)},
        "categorical": ["m", "b"],
        "priors": replace(Priors(), alpha=3.0),
    }
    cloned = clone(regressor(**options).fit(X, Y))
    assert fitted_attributes(cloned) == set()
    assert {name: cloned.get_params()[name] for name in options} == options


def test_pipeline(model):
    """Scaling a column beforehand changes nothing; columns may arrive in another order."""
    scaling = ColumnTransformer(
        [("scale", StandardScaler(), ["a"])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    pipeline = make_pipeline(scaling, regressor()).fit(X, Y)
    prediction = pipeline.predict(NEW[["b", "m", "a"]])
    np.testing.assert_allclose(prediction, model.predict(NEW), rtol=1e-8)
    assert pipeline.score(NEW, NEW_Y) == pytest.approx(model.score(NEW, NEW_Y), rel=1e-6)


def test_cross_validation():
    folds = KFold(4, shuffle=True, random_state=0)
    scores = cross_val_score(regressor(), X, Y, cv=folds, error_score="raise")
    expected = [
        regressor().fit(X.iloc[train], Y.iloc[train]).score(X.iloc[test], Y.iloc[test])
        for train, test in folds.split(X)
    ]
    np.testing.assert_array_equal(scores, expected)


def test_grid_search_over_kernels():
    search = GridSearchCV(
        regressor(), {"kernel": list(KERNELS)}, cv=KFold(4), error_score="raise"
    ).fit(X, Y)
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores)) == 3
    assert search.best_params_ == {"kernel": list(KERNELS)[int(np.argmax(scores))]}
    expected = regressor(**search.best_params_).fit(X, Y).predict(NEW)
    np.testing.assert_array_equal(search.predict(NEW), expected)


def test_options_are_not_checked_or_changed_before_fit():
    odd = {"kernel": "cubic", "restarts": -3, "latent_dim": [7]}
    estimator = LVGPRegressor(**odd)
    assert all(estimator.get_params()[name] is value for name, value in odd.items())
    assert re.search("cubic", repr(estimator))
