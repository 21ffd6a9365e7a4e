"""scikit-learn's own checks, and its tools around the estimator."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import lvgp

ESTIMATOR = lvgp.LVGPRegressor(method="map", restarts=1, progress=False, random_state=0)


@parametrize_with_checks([ESTIMATOR])
def test_scikit_learns_estimator_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.random(30), "c": rng.choice(list("abc"), 30)})
    return X, np.sin(4 * X["x"]) + X["c"].map({"a": 0.0, "b": 0.3, "c": 1.5})


def test_pipeline_cross_validation_and_grid_search(table):
    X, y = table
    pipeline = make_pipeline(
        FunctionTransformer(lambda X: X.assign(x=2 * X["x"])), clone(ESTIMATOR)
    )
    scores = cross_val_score(pipeline, X, y, cv=3)
    assert scores.min() > 0.5
    search = GridSearchCV(clone(ESTIMATOR), {"kernel": ["rbf", "matern32"]}, cv=3).fit(X, y)
    assert set(search.cv_results_["param_kernel"]) == {"rbf", "matern32"}
    assert search.score(X, y) > 0.9


def test_clone_and_pickle(table):
    X, y = table
    model = clone(ESTIMATOR).fit(X, y)
    assert clone(model).get_params() == model.get_params()
    assert not hasattr(clone(model), "draws_")
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))


@pytest.mark.parametrize("kernel", ["rbf", "matern52", "matern32"])
@pytest.mark.parametrize("method", ["map", "mle"])
def test_without_categories_it_is_scikit_learns_gaussian_process(kernel, method):
    """Same hyperparameters, to 1e-6 in mean and sd; mu ~ N(0, 1) is a constant in the kernel."""
    rng = np.random.default_rng(1)
    X, X_new = rng.random((25, 2)), rng.random((40, 2))
    y = np.sin(5 * X[:, 0]) * X[:, 1] + 0.05 * rng.normal(size=25)
    ours = lvgp.LVGPRegressor(method, kernel=kernel, restarts=3, random_state=0, progress=False)
    ours.fit(
        X,
        y,
    )
    p = ours.parameters_
    scale = y.std(ddof=1)
    lengths = list(p["lengthscales"].values())
    families = {
        "rbf": RBF(lengths),
        "matern52": Matern(lengths, nu=2.5),
        "matern32": Matern(lengths, nu=1.5),
    }
    signal = ConstantKernel(p["signal_sd"] ** 2) * families[kernel] + WhiteKernel(
        p["noise_sd"] ** 2
    )
    shift = p["mean"]
    if method == "map":
        signal, shift = signal + ConstantKernel(scale**2), y.mean()
    theirs = GaussianProcessRegressor(signal, optimizer=None, alpha=0.0).fit(X, y - shift)
    mean, sd = ours.predict(X_new, return_std=True)
    expected, noisy_sd = theirs.predict(X_new, return_std=True)
    np.testing.assert_allclose(mean, expected + shift, atol=1e-6)
    np.testing.assert_allclose(sd, np.sqrt(noisy_sd**2 - p["noise_sd"] ** 2), atol=1e-6)
