"""LVGPRegressor: what people touch."""

import warnings

import numpy as np
import pandas as pd
import pytest

import lvgp
from lvgp.errors import DataWarning, InputError, NumericalWarning, PlugInIntervalWarning


def make(**options):
    options = {"method": "map", "restarts": 2, "random_state": 0, "progress": False} | options
    return lvgp.LVGPRegressor(**options)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "x": rng.random(24),
            "site": rng.choice(list("ABCD"), 24),
            "two": rng.choice(["p", "q"], 24),
        },
        index=[f"run {i}" for i in range(24)],
    )
    y = np.sin(3 * X["x"]) + X["site"].map({"A": 0, "B": 0.1, "C": 1, "D": 2}) + (X["two"] == "q")
    return X, (y + 0.05 * rng.normal(size=24)).rename("G")


@pytest.fixture(scope="module")
def fitted(table):
    return make().fit(*table)


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlugInIntervalWarning)
        yield


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda X, y: (X.assign(x=[np.nan] + [1.0] * 23), y), ["'x'", "row run 0"]),
        (lambda X, y: (X, y.where(y.index != "run 3")), ["'G'", "row run 3"]),
        (lambda X, y: (X, y * 0 + 1), ["'G'", "constant"]),
        (lambda X, y: (X.head(2), y.head(2)), ["at least 3 rows"]),
        (lambda X, y: (X, y.head(20)), ["got 20 for 24 rows"]),
        (lambda X, y: (X, X["site"]), ["'site'", "numeric"]),
        (lambda X, y: (X.set_axis(["x", "x", "two"], axis=1), y), ["more than once"]),
    ],
)
def test_bad_training_data_leaves_the_model_as_it_was(table, change, expected):
    model = make()
    with pytest.raises(InputError) as caught:
        model.fit(*change(*table))
    for part in expected:
        assert part in str(caught.value)
    assert not [name for name in vars(model) if name.endswith("_") or name.startswith("_")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda X: X.drop(columns="site"), ["missing ['site']"]),
        (lambda X: X.assign(extra=1), ["not expected ['extra']"]),
        (lambda X: X.assign(site="Z"), ["'site'", "'Z'", "'A', 'B', 'C', 'D'", "run 0"]),
        (lambda X: X.assign(x="text"), ["'x'", "'text'"]),
        (lambda X: X.assign(x=np.inf), ["'x'", "inf"]),
        (lambda X: X.to_numpy()[:, :2], ["2 features", "expecting 3"]),
    ],
)
@pytest.mark.parametrize("call", ["predict", "predict_interval", "sample_y"])
def test_bad_rows_at_prediction_are_refused(fitted, table, change, expected, call):
    with pytest.raises(InputError) as caught:
        getattr(fitted, call)(change(table[0]))
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"method": "bayes"}, NotImplementedError, "not available yet"),
        ({"method": "vi"}, NotImplementedError, "not available yet"),
        ({"approximation": "fitc"}, NotImplementedError, "not available yet"),
        ({"unknown_levels": "prior"}, NotImplementedError, "not available yet"),
        ({"method": "MAP"}, InputError, "method: expected one of"),
        ({"kernel": "cosine"}, InputError, "kernel: expected one of"),
        ({"restarts": 0}, InputError, "restarts"),
        ({"latent_dim": 0}, InputError, "latent_dim"),
        ({"latent_dim": {"nope": 2}}, InputError, "latent_dim: no column 'nope'"),
        ({"priors": "vague"}, InputError, "priors"),
        ({"priors": lvgp.Priors(alpha=1.0)}, InputError, "alpha"),
    ],
)
def test_bad_options_are_refused_at_fit(table, options, error, match):
    with pytest.raises(error, match=match):
        make(**options).fit(*table)


def test_latent_dimensions_by_column_are_capped(table):
    with pytest.warns(DataWarning, match="at most 3 dimensions"):
        model = make(latent_dim={"site": 7}, restarts=1).fit(*table)
    assert model.parameters_["latents"]["site"].shape == (4, 3)
    assert make(latent_dim=1, restarts=1).fit(*table).parameters_["latents"]["site"].shape == (4, 1)


def test_predictions_are_accurate_and_finite(fitted, table):
    X, y = table
    mean, sd = fitted.predict(X, return_std=True)
    assert fitted.score(X, y) > 0.98
    assert np.isfinite(mean).all()
    assert (sd > 0).all()
    assert 1 - np.sum((y - mean) ** 2) / np.sum((y - y.mean()) ** 2) == pytest.approx(
        fitted.score(X, y)
    )


def test_sd_is_the_root_of_the_covariances_diagonal(fitted, table):
    mean, sd = fitted.predict(table[0], return_std=True)
    joint_mean, covariance = fitted.predict(table[0], return_cov=True)
    np.testing.assert_allclose(joint_mean, mean, rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), sd, rtol=1e-5)
    with pytest.raises(InputError, match="one of them"):
        fitted.predict(table[0], return_std=True, return_cov=True)


@pytest.mark.usefixtures("quiet")
def test_intervals(fitted, table):
    X = table[0]
    wide, narrow = fitted.predict_interval(X, 0.95), fitted.predict_interval(X, 0.5)
    assert list(wide.columns) == ["mean", "lower", "upper"]
    assert wide.index.equals(X.index)
    assert ((wide.lower < narrow.lower) & (narrow.upper < wide.upper)).all()
    mean, sd = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(wide.upper - mean, 1.959963984540054 * sd, rtol=1e-8)
    noisy = fitted.predict_interval(X, 0.95, include_noise=True)
    extra = (noisy.upper - mean) ** 2 - (wide.upper - mean) ** 2
    np.testing.assert_allclose(extra, (1.959963984540054 * fitted.parameters_["noise_sd"]) ** 2)
    quantiles = fitted.predict_quantiles(X, [0.025, 0.5])
    assert list(quantiles.columns) == [0.025, 0.5]
    np.testing.assert_allclose(quantiles[0.025], wide.lower)
    np.testing.assert_allclose(quantiles[0.5], mean)


@pytest.mark.parametrize("coverage", [0, 1, -0.1, 95])
def test_impossible_coverages_are_refused(fitted, table, coverage):
    with pytest.raises(InputError, match="coverage"):
        fitted.predict_interval(table[0], coverage)
    with pytest.raises(InputError, match="quantiles"):
        fitted.predict_quantiles(table[0], [0.5, coverage])


def test_plug_in_intervals_come_with_a_warning(fitted, table):
    with pytest.warns(PlugInIntervalWarning, match="too narrow"):
        fitted.predict_interval(table[0])
    numeric = make(restarts=1).fit(table[0][["x"]], table[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numeric.predict_interval(table[0][["x"]])


def test_joint_samples(fitted, table):
    """5 standard errors on 24 means from 4000 samples: false alarms below 2e-5."""
    X = table[0]
    samples = fitted.sample_y(X, 4000, random_state=1)
    assert samples.shape == (24, 4000)
    np.testing.assert_array_equal(samples[:, :9], fitted.sample_y(X, 4000, random_state=1)[:, :9])
    mean, sd = fitted.predict(X, return_std=True)
    assert (np.abs(samples.mean(axis=1) - mean) < 5 * sd / np.sqrt(4000)).all()
    noisy = fitted.sample_y(X, 4000, random_state=1, include_noise=True)
    expected = np.sqrt(sd**2 + fitted.parameters_["noise_sd"] ** 2)
    np.testing.assert_allclose(noisy.std(axis=1), expected, rtol=0.07)


def test_same_seed_same_model_and_columns_in_any_order(fitted, table):
    X, y = table
    again = make().fit(X, y)
    np.testing.assert_array_equal(again.draws_.vectors, fitted.draws_.vectors)
    np.testing.assert_array_equal(fitted.predict(X[["two", "x", "site"]]), fitted.predict(X))


def test_shifting_and_scaling_the_response_scales_predictions(fitted, table):
    X, y = table
    other = make().fit(X, 1000 * y - 7)
    mean, sd = fitted.predict(X, return_std=True)
    other_mean, other_sd = other.predict(X, return_std=True)
    np.testing.assert_allclose(other_mean, 1000 * mean - 7, rtol=1e-4)
    np.testing.assert_allclose(other_sd, 1000 * sd, rtol=1e-3)


def test_names_and_positions_mix_with_a_warning(fitted, table):
    X, y = table
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(fitted.predict(X.to_numpy()), fitted.predict(X))
    assert list(fitted.feature_names_in_) == ["x", "site", "two"]
    unnamed = make(restarts=1).fit(X.to_numpy(), y)
    assert not hasattr(unnamed, "feature_names_in_")
    with pytest.warns(UserWarning, match="fitted without feature names"):
        unnamed.predict(X)


@pytest.mark.parametrize("method", ["map", "mle"])
def test_repeated_rows_without_noise_never_give_nan(method, table):
    X = pd.concat([table[0].head(12)] * 2, ignore_index=True)
    y = np.tile(np.arange(12.0), 2)
    model = make(method=method, priors=lvgp.Priors(noise_floor=0.0), restarts=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        model.fit(X, y)
        mean, sd = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(sd).all()


def test_levels_without_rows_are_predicted(table):
    X, y = table
    model = make(levels={"site": ["A", "B", "C", "D", "E"]}, restarts=1).fit(X, y)
    mean, sd = model.predict(X.head(1).assign(site="E"), return_std=True)
    assert np.isfinite(mean).all()
    assert sd[0] > model.predict(X.head(1), return_std=True)[1][0]


def test_parameters_are_on_the_users_scale(fitted, table):
    p = fitted.parameters_
    assert set(p["lengthscales"]) == {"x", "two"}
    assert list(p["latents"]["site"].index) == ["A", "B", "C", "D"]
    assert 0 < p["noise_sd"] < p["signal_sd"] < 100 * table[1].std()
    assert fitted.optimization_.starts == 2
    assert fitted.seed_ == 0


def test_unseeded_fits_can_be_repeated_from_the_seed_they_used(table):
    first = make(random_state=None, restarts=1).fit(*table)
    again = make(random_state=first.seed_, restarts=1).fit(*table)
    np.testing.assert_array_equal(first.draws_.vectors, again.draws_.vectors)
