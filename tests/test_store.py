"""The saved file: nothing is lost in it, nothing in it runs, and a damaged one is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import textwrap
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import lvgp
from lvgp import store
from lvgp.errors import ModelFileError

Fit = Callable[..., lvgp.LVGPRegressor]


def _table() -> tuple[pd.DataFrame, pd.Series]:
    """Numbers, a column with five levels, one with two, and one that is constant."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(
        {
            "x": rng.random(15),
            "material": rng.permutation(list("abcde") * 3),
            "coated": rng.permutation([True, False, True] * 5),
            "site": "north",
        }
    )
    y = pd.Series(np.sin(4 * X["x"]) + X["material"].map(ord) % 3 + 0.5 * X["coated"])
    return X, y


def _fitted(X: Any, y: Any, **options: Any) -> lvgp.LVGPRegressor:
    options = {"method": "map", "restarts": 1, "random_state": 0, "progress": False} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lvgp.errors.LVGPWarning)
        return lvgp.LVGPRegressor(**options).fit(X, y)


def _new_rows() -> pd.DataFrame:
    X, _ = _table()
    return X.iloc[:6].assign(x=np.linspace(-0.2, 1.3, 6))


@pytest.fixture(scope="module")
def model() -> lvgp.LVGPRegressor:
    X, y = _table()
    return _fitted(X, y)


@pytest.fixture(scope="module")
def other() -> lvgp.LVGPRegressor:
    X, y = _table()
    return _fitted(X, -3.0 * y)


@pytest.fixture(scope="module")
def saved_bytes(model: lvgp.LVGPRegressor, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "model.lvgp"
    model.save(path)
    return path.read_bytes()


def _predictions(model: lvgp.LVGPRegressor, X: Any) -> dict[str, np.ndarray]:
    """All that a model can be asked, as arrays."""
    mean, sd = model.predict(X, return_std=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lvgp.errors.PlugInIntervalWarning)
        interval = model.predict_interval(X, coverage=0.9)
        noisy = model.predict_interval(X, include_noise=True)
        quantiles = model.predict_quantiles(X, [0.1, 0.5])
    return {
        "mean": mean,
        "sd": sd,
        "covariance": model.predict(X, return_cov=True)[1],
        "interval": interval.to_numpy(),
        "noisy interval": noisy.to_numpy(),
        "quantiles": quantiles.to_numpy(),
        "sample": model.sample_y(X, 3, random_state=5),
        "noisy sample": model.sample_y(X, 2, random_state=6, include_noise=True),
    }


def _assert_same_bits(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].tobytes() == right[name].tobytes(), name


def _assert_same_fit(loaded: lvgp.LVGPRegressor, model: lvgp.LVGPRegressor) -> None:
    """Everything that a fit sets, but the predictions."""
    assert loaded.space_ == model.space_
    level_types = [
        [type(level) for column in fit.space_.qualitative for level in column.levels]
        for fit in (loaded, model)
    ]
    assert level_types[0] == level_types[1]
    assert loaded.priors_ == model.priors_
    assert loaded.seed_ == model.seed_
    assert loaded.optimization_ == model.optimization_
    assert loaded.draws_.method == model.draws_.method
    assert loaded.draws_.jitter == model.draws_.jitter
    assert loaded.draws_.vectors.tobytes() == model.draws_.vectors.tobytes()
    assert loaded.draws_.log_densities.tobytes() == model.draws_.log_densities.tobytes()
    assert loaded.n_features_in_ == model.n_features_in_
    assert hasattr(loaded, "feature_names_in_") == hasattr(model, "feature_names_in_")
    if hasattr(model, "feature_names_in_"):
        assert list(loaded.feature_names_in_) == list(model.feature_names_in_)
    _assert_same_parameters(loaded.parameters_, model.parameters_)


def _assert_same_parameters(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        if name != "latents":
            assert left[name] == right[name], name
    assert left["latents"].keys() == right["latents"].keys()
    for column, latents in right["latents"].items():
        pd.testing.assert_frame_equal(left["latents"][column], latents, check_exact=True)


def test_round_trip_is_bit_identical(model: lvgp.LVGPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "model.lvgp")
    loaded = lvgp.load(tmp_path / "model.lvgp")
    _assert_same_bits(_predictions(loaded, _new_rows()), _predictions(model, _new_rows()))
    _assert_same_fit(loaded, model)


def test_loaded_model_keeps_the_index_and_the_warning(
    model: lvgp.LVGPRegressor, saved_bytes: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "model.lvgp"
    path.write_bytes(saved_bytes)
    X = _new_rows().set_axis(list("uvwxyz"))
    with pytest.warns(lvgp.errors.PlugInIntervalWarning, match="too narrow"):
        interval = lvgp.load(path).predict_interval(X)
    assert list(interval.index) == list("uvwxyz")


def test_round_trip_into_a_new_process(model: lvgp.LVGPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "model.lvgp")
    _new_rows().to_pickle(tmp_path / "rows.pkl")
    script = """
        import sys, warnings, numpy as np, pandas as pd, lvgp
        warnings.simplefilter("ignore")
        folder = sys.argv[1]
        model, X = lvgp.load(f"{folder}/model.lvgp"), pd.read_pickle(f"{folder}/rows.pkl")
        mean, sd = model.predict(X, return_std=True)
        np.savez(
            f"{folder}/there.npz",
            **{
                "mean": mean,
                "sd": sd,
                "covariance": model.predict(X, return_cov=True)[1],
                "interval": model.predict_interval(X, coverage=0.9).to_numpy(),
                "noisy interval": model.predict_interval(X, include_noise=True).to_numpy(),
                "quantiles": model.predict_quantiles(X, [0.1, 0.5]).to_numpy(),
                "sample": model.sample_y(X, 3, random_state=5),
                "noisy sample": model.sample_y(X, 2, random_state=6, include_noise=True),
            },
        )
        model.save(f"{folder}/again.lvgp")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], check=True)
    with np.load(tmp_path / "there.npz") as archive:
        there = {name: archive[name] for name in archive.files}
    _assert_same_bits(there, _predictions(model, _new_rows()))
    _assert_same_fit(lvgp.load(tmp_path / "again.lvgp"), model)


def _int_named() -> tuple[pd.DataFrame, pd.Series]:
    X, y = _table()
    return X[["x", "material"]].set_axis([0, 7], axis=1), y


def _with_levels(levels: list[Any]) -> tuple[pd.DataFrame, pd.Series]:
    """The five materials renamed."""
    X, y = _table()
    names = pd.Series(dict(zip("abcde", levels, strict=True)), dtype=object)
    return X[["x"]].assign(m=names[X["material"]].to_numpy()), y


def _array() -> tuple[np.ndarray, np.ndarray]:
    X, y = _table()
    return np.column_stack([X["x"], X["material"].map(ord) - 97, X["coated"]]), y.to_numpy()


def _numeric() -> tuple[pd.DataFrame, pd.Series]:
    X, y = _table()
    return X[["x"]].assign(z=np.arange(15.0)), y


def _labelled() -> tuple[pd.DataFrame, pd.Series]:
    """A Categorical with levels that no row has."""
    X, y = _table()
    return X[["material"]].astype(pd.CategoricalDtype([*"edcbaf"])), y


def _empty_name() -> tuple[pd.DataFrame, pd.Series]:
    X, y = _table()
    return X[["x", "material"]].set_axis(["", "Größe 'ß' 量\n"], axis=1), y


CHANGED = lvgp.Priors(
    mean_sd=1.5,
    log_variance_mean=0.25,
    log_variance_sd=1.25,
    noise_scale=0.1,
    noise_floor=1e-5,
    lengthscale_low=0.2,
    lengthscale_high=7.5,
    lengthscale_tail_sd=0.3,
    alpha=3.5,
)

CASES: dict[str, tuple[Callable[[], tuple[Any, Any]], dict[str, Any]]] = {
    "plain": (_table, {}),
    "integer column names": (_int_named, {"latent_dim": {7: 1}, "bounds": {0: (-1.0, 2.0)}}),
    "integer categorical": (_int_named, {"categorical": [7], "levels": {7: [*"abcdef"]}}),
    "dict options": (
        _table,
        {
            "latent_dim": {"material": 3},
            "levels": {"material": [*"zabcde"]},
            "bounds": {"x": (0.0, 2.0)},
            "categorical": ["material", "coated", "site"],
        },
    ),
    "every option": (
        _table,
        {
            "kernel": "matern52",
            "latent_dim": 1,
            "n_inducing": 12,
            "chains": 3,
            "warmup": 70,
            "draws": 80,
            "target_accept": 0.85,
            "restarts": 2,
            "sampler": "nuts",
            "priors": CHANGED,
        },
    ),
    "mle": (_table, {"method": "mle", "kernel": "matern32"}),
    "float levels": (lambda: _with_levels([0.1, 0.5, -1e300, 2.0, 3.0]), {"categorical": ["m"]}),
    "integer levels": (lambda: _with_levels([1, -2, 3, 2**70, 5]), {"categorical": ["m"]}),
    "mixed levels": (lambda: _with_levels([True, 2, 2.5, "3", ""]), {}),
    "unicode levels": (lambda: _with_levels(["\x00", "\u00fc", '"', "\\", "\U0001f642"]), {}),
    "unicode column names": (_empty_name, {}),
    "array": (_array, {"categorical": [1]}),
    "array with all options": (
        _array,
        {
            "categorical": [1, 2],
            "levels": {1: [0.0, 1.0, 2.0, 3.0, 4.0, 9.0]},
            "bounds": {0: (0, 1)},
            "latent_dim": {1: 1},
        },
    ),
    "no categories": (_numeric, {}),
    "no numbers": (_labelled, {}),
    "large seed": (_table, {"random_state": 2**40}),
    "numpy scalars": (
        _table,
        {"latent_dim": np.int64(1), "restarts": np.int64(1), "random_state": np.int32(4)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_model_survives(case: str, tmp_path: Path) -> None:
    data, options = CASES[case]
    X, y = data()
    model = _fitted(X, y, **options)
    model.save(tmp_path / "model.lvgp")
    loaded = lvgp.load(tmp_path / "model.lvgp")
    _assert_same_fit(loaded, model)
    assert loaded.predict(X).tobytes() == model.predict(X).tobytes()
    expected = model.get_params() | {"priors": model.priors_, "random_state": model.seed_}
    assert loaded.get_params() == expected


@pytest.mark.parametrize(
    "options",
    [
        {"bounds": {"x": (0.0, 2.0)}},
        {"categorical": ("material", "coated", "site")},
        {"levels": {"material": ("e", "d", "c", "b", "a")}},
    ],
)
def test_tuples_in_the_options_stay_tuples(options: dict[str, Any], tmp_path: Path) -> None:
    """So that `loaded.get_params() == model.get_params()`, as a user would compare."""
    X, y = _table()
    _fitted(X, y, **options).save(tmp_path / "model.lvgp")
    params = lvgp.load(tmp_path / "model.lvgp").get_params()
    assert {name: params[name] for name in options} == options


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(lambda X: {"categorical": X.columns[1:]}, id="index of columns"),
        pytest.param(lambda X: {"categorical": {"material", "coated", "site"}}, id="set"),
        pytest.param(lambda X: {"levels": {"material": X["material"].unique()}}, id="unique"),
        pytest.param(
            lambda X: {"levels": {"material": X["material"].astype(object).unique()}},
            id="object array",
        ),
        pytest.param(
            lambda X: {"levels": {"material": X["material"].drop_duplicates()}}, id="series"
        ),
        pytest.param(
            lambda X: {"levels": {"material": X["material"].astype("category").cat.categories}},
            id="categories",
        ),
        pytest.param(lambda X: {"levels": {"material": dict.fromkeys("abcde")}}, id="dict"),
        pytest.param(lambda X: {"bounds": {"x": np.array([0.0, 2.0])}}, id="bounds array"),
    ],
)
def test_whatever_container_fit_takes_can_be_saved(
    options: Callable[[pd.DataFrame], dict[str, Any]], tmp_path: Path
) -> None:
    X, y = _table()
    model = _fitted(X, y, **options(X))
    model.save(tmp_path / "model.lvgp")
    loaded = lvgp.load(tmp_path / "model.lvgp")
    assert loaded.predict(X).tobytes() == model.predict(X).tobytes()
    again = _fitted(X, y, **{name: getattr(loaded, name) for name in options(X)})
    assert again.space_ == model.space_


def test_integer_levels_from_a_range_can_be_saved(tmp_path: Path) -> None:
    X, y = _with_levels([0, 1, 2, 3, 4])
    model = _fitted(X, y, levels={"m": range(5)})
    model.save(tmp_path / "model.lvgp")
    assert lvgp.load(tmp_path / "model.lvgp").space_ == model.space_


def test_numpy_integers_as_column_names_can_be_saved(tmp_path: Path) -> None:
    X, y = _table()
    X = X[["x", "material"]].set_axis(pd.Index([*np.arange(1), "m"], dtype=object), axis=1)
    model = _fitted(X, y)
    model.save(tmp_path / "model.lvgp")
    assert lvgp.load(tmp_path / "model.lvgp").predict(X).tobytes() == model.predict(X).tobytes()


@pytest.mark.parametrize("number", [np.float32(2.5), np.int64(3), np.float64(2.5), 3])
def test_priors_with_other_kinds_of_numbers_can_be_saved(number: Any, tmp_path: Path) -> None:
    X, y = _table()
    model = _fitted(X, y, priors=lvgp.Priors(alpha=number))
    model.save(tmp_path / "model.lvgp")
    loaded = lvgp.load(tmp_path / "model.lvgp")
    assert loaded.priors_ == model.priors_
    assert loaded.predict(X).tobytes() == model.predict(X).tobytes()


def test_refitting_the_loaded_options_repeats_the_fit(tmp_path: Path) -> None:
    """Also when the seed was left open: the file holds the seed that was used."""
    X, y = _table()
    model = _fitted(X, y, random_state=None, priors="noisy")
    model.save(tmp_path / "model.lvgp")
    repeated = _fitted(X, y, **clone(lvgp.load(tmp_path / "model.lvgp")).get_params())
    assert repeated.draws_.vectors.tobytes() == model.draws_.vectors.tobytes()


def test_random_state_object_is_saved_as_the_seed_drawn_from_it(tmp_path: Path) -> None:
    X, y = _table()
    model = _fitted(X, y, random_state=np.random.RandomState(4))
    model.save(tmp_path / "model.lvgp")
    assert lvgp.load(tmp_path / "model.lvgp").random_state == model.seed_


def test_unfitted_model_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        lvgp.LVGPRegressor().save(tmp_path / "model.lvgp")
    assert not list(tmp_path.iterdir())


def test_failed_starts_survive_as_nan(model: lvgp.LVGPRegressor, tmp_path: Path) -> None:
    """JSON has no NaN of its own, and the search reports failed starts as NaN."""
    search = dataclasses.replace(model.optimization_, log_densities=(float("nan"), -1.0))
    draws = dataclasses.replace(model.draws_, optimization=search)
    posterior = dataclasses.replace(_read(model, tmp_path).posterior, draws=draws)
    store.write(tmp_path / "nan.lvgp", store.Saved(model.space_, posterior, {}, "0"))
    assert store.read(tmp_path / "nan.lvgp").posterior.draws.optimization.failed == 1


def _read(model: lvgp.LVGPRegressor, folder: Path) -> store.Saved:
    model.save(folder / "model.lvgp")
    return store.read(folder / "model.lvgp")


# Files that are not what they should be


def _refusal(path: Path) -> str:
    """Load what must not load, and return the message: one line that starts with the path."""
    with pytest.raises(ModelFileError) as caught:
        lvgp.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    assert len(message) > len(f"{path}: ") + 10
    return message


@pytest.mark.parametrize("share", np.linspace(0, 1, 21)[:-1])
def test_truncated_file_is_refused(share: float, saved_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.lvgp"
    path.write_bytes(saved_bytes[: int(share * len(saved_bytes))])
    message = _refusal(path)
    if int(share * len(saved_bytes)) > saved_bytes.index(b"\n"):
        assert "truncated" in message


@pytest.mark.parametrize("missing", [1, 2, 22])
def test_truncation_by_a_few_bytes_says_how_many_are_left(
    missing: int, saved_bytes: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "model.lvgp"
    path.write_bytes(saved_bytes[:-missing])
    size = len(saved_bytes) - saved_bytes.index(b"\n") - 1
    assert f"truncated, {size - missing} of {size} bytes" in _refusal(path)


@pytest.mark.parametrize("share", np.linspace(0, 1, 31)[:-1])
@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_flipped_bit_in_the_payload_is_refused(
    share: float, mask: int, saved_bytes: bytes, tmp_path: Path
) -> None:
    start = saved_bytes.index(b"\n") + 1
    altered = bytearray(saved_bytes)
    altered[start + int(share * (len(saved_bytes) - start))] ^= mask
    path = tmp_path / "model.lvgp"
    path.write_bytes(altered)
    assert "altered" in _refusal(path)


@pytest.mark.parametrize("mask", [0x01, 0x02, 0x04, 0x08, 0x80, 0xFF])
def test_flipped_bit_anywhere_in_the_header_is_refused(
    mask: int, saved_bytes: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "model.lvgp"
    accepted = []
    for position in range(saved_bytes.index(b"\n") + 1):
        altered = bytearray(saved_bytes)
        altered[position] ^= mask
        path.write_bytes(altered)
        try:
            lvgp.load(path)
        except ModelFileError:
            continue
        accepted.append(bytes(altered[: altered.index(b"\n")]))
    assert not accepted


def test_bytes_added_at_the_end_are_refused(saved_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.lvgp"
    path.write_bytes(saved_bytes + b"\0")
    assert "altered" in _refusal(path)


@pytest.mark.parametrize("version", [store.FORMAT + 1, 99, 10**40])
def test_newer_format_is_refused_with_advice(
    version: int, saved_bytes: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "model.lvgp"
    path.write_bytes(saved_bytes.replace(b"lvgp-model 1 ", b"lvgp-model %d " % version, 1))
    message = _refusal(path)
    assert f"format version {version}" in message
    assert f"up to {store.FORMAT}" in message
    assert "update lvgp" in message


def test_format_that_never_existed_is_refused(saved_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.lvgp"
    path.write_bytes(saved_bytes.replace(b"lvgp-model 1 ", b"lvgp-model 0 ", 1))
    _refusal(path)


def _zip_bytes() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("manifest", "{}")
    return buffer.getvalue()


def _npz_bytes(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"lvgp-model", id="start of the header"),
        pytest.param("x,y\n1,2\nü,3\n".encode(), id="text"),
        pytest.param(b"lvgp-model one sha256=zz bytes=3\nabc", id="header with words"),
        pytest.param(pickle.dumps({"a": 1}), id="pickle"),
        pytest.param(_zip_bytes(), id="zip"),
        pytest.param(_npz_bytes(x=np.zeros(3)), id="npz"),
        pytest.param(bytes(range(256)) * 40, id="binary"),
    ],
)
def test_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.lvgp"
    path.write_bytes(content)
    assert _refusal(path).endswith(": not a saved lvgp model")


def test_missing_file_and_directory_are_refused(tmp_path: Path) -> None:
    assert "No such file" in _refusal(tmp_path / "absent.lvgp")
    assert "directory" in _refusal(tmp_path)


# Files with a correct checksum and the wrong contents, as an attacker or a later version writes


def _sealed(payload: bytes) -> bytes:
    digest = hashlib.sha256(payload).hexdigest()
    return b"lvgp-model 1 sha256=%s bytes=%d\n" % (digest.encode(), len(payload)) + payload


def _arrays(saved_bytes: bytes) -> dict[str, np.ndarray]:
    payload = saved_bytes[saved_bytes.index(b"\n") + 1 :]
    with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _with_manifest(saved_bytes: bytes, change: Callable[[Any], Any]) -> bytes:
    """The same file, its manifest replaced by what `change` makes of it."""
    arrays = _arrays(saved_bytes)
    manifest = change(json.loads(arrays["manifest"].tobytes()))
    arrays["manifest"] = np.frombuffer(json.dumps(manifest).encode(), dtype=np.uint8)
    return _sealed(_npz_bytes(**arrays))


def test_resealed_file_loads(saved_bytes: bytes, tmp_path: Path) -> None:
    """The helpers above make files that only fail for what is changed in them."""
    path = tmp_path / "model.lvgp"
    path.write_bytes(_with_manifest(saved_bytes, lambda manifest: manifest))
    assert lvgp.load(path).predict(_new_rows()).shape == (6,)


class Bomb:
    """Leaves a file behind when unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def test_bomb_goes_off_when_unpickled(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "place", ["x", "vectors", "manifest", "another", "payload", "whole file", "npy"]
)
def test_pickled_code_in_a_file_does_not_run(
    place: str, saved_bytes: bytes, tmp_path: Path
) -> None:
    bomb = Bomb(tmp_path / "executed")
    if place == "whole file":
        content = pickle.dumps(bomb)
    elif place == "payload":
        content = _sealed(pickle.dumps(bomb))
    elif place == "npy":
        buffer = io.BytesIO()
        np.save(buffer, np.array([bomb], dtype=object), allow_pickle=True)
        content = _sealed(buffer.getvalue())
    else:
        arrays = _arrays(saved_bytes) | {place: np.array([bomb], dtype=object)}
        content = _sealed(_npz_bytes(**arrays))
    path = tmp_path / "model.lvgp"
    path.write_bytes(content)
    _refusal(path)
    assert not (tmp_path / "executed").exists()


def _broken_zip(saved_bytes: bytes) -> bytes:
    """A zip whose directory is cut off."""
    payload = saved_bytes[saved_bytes.index(b"\n") + 1 :]
    return payload[: len(payload) // 2]


def _bad_crc(saved_bytes: bytes) -> bytes:
    """A zip with one number of an array changed, so that the checksum inside it is wrong."""
    payload = bytearray(saved_bytes[saved_bytes.index(b"\n") + 1 :])
    payload[200] ^= 1
    return bytes(payload)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(lambda saved: b"", id="empty"),
        pytest.param(lambda saved: b"hello", id="text"),
        pytest.param(_broken_zip, id="half a zip"),
        pytest.param(_bad_crc, id="zip with a bad checksum"),
        pytest.param(lambda saved: _zip_bytes(), id="zip of something else"),
        pytest.param(lambda saved: _npz_bytes(x=np.zeros(3)), id="npz of something else"),
    ],
)
def test_sealed_payload_that_is_no_archive_is_refused(
    payload: Callable[[bytes], bytes], saved_bytes: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "model.lvgp"
    path.write_bytes(_sealed(payload(saved_bytes)))
    _refusal(path)


def _without(name: str) -> Callable[[Any], Any]:
    return lambda manifest: {key: value for key, value in manifest.items() if key != name}


def _option(name: str, value: Any) -> Callable[[Any], Any]:
    return lambda manifest: manifest | {"options": manifest["options"] | {name: value}}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda manifest: None, id="null"),
        pytest.param(lambda manifest: [], id="list"),
        pytest.param(lambda manifest: "text", id="string"),
        pytest.param(_without("options"), id="no options"),
        pytest.param(_without("columns"), id="no columns"),
        pytest.param(_without("priors"), id="no priors"),
        pytest.param(_without("y_scale"), id="no scale"),
        pytest.param(lambda manifest: manifest | {"options": []}, id="options a list"),
        pytest.param(lambda manifest: manifest | {"model": []}, id="model a list"),
        pytest.param(lambda manifest: manifest | {"columns": [1]}, id="column a number"),
        pytest.param(lambda manifest: manifest | {"columns": [{"kind": "x"}]}, id="column kind"),
        pytest.param(lambda manifest: manifest | {"priors": {"beta": 1.0}}, id="unknown prior"),
        pytest.param(
            lambda manifest: manifest | {"model": manifest["model"] | {"depth": 3}},
            id="unknown part of the model",
        ),
        pytest.param(
            lambda manifest: manifest | {"model": manifest["model"] | {"kernel": "cubic"}},
            id="unknown kernel",
        ),
        pytest.param(lambda manifest: manifest | {"method": "magic"}, id="unknown method"),
        pytest.param(_option("shape", "round"), id="unknown option"),
        pytest.param(_option("levels", {"triples": []}), id="unknown kind of option"),
    ],
)
def test_sealed_manifest_that_is_no_model_is_refused(
    change: Callable[[Any], Any], saved_bytes: bytes, tmp_path: Path
) -> None:
    """As a later version of the library may write without a new format number."""
    path = tmp_path / "model.lvgp"
    path.write_bytes(_with_manifest(saved_bytes, change))
    _refusal(path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        pytest.param("vectors", lambda array: array[:, :-1], id="vector too short"),
        pytest.param("vectors", lambda array: array[0], id="one vector"),
        pytest.param("vectors", lambda array: array.astype(str), id="vectors of text"),
        pytest.param("x", lambda array: array[:, :-1], id="numeric column missing"),
        pytest.param("x", lambda array: array[:-1], id="row missing"),
        pytest.param("t", lambda array: array[:, :0], id="category missing"),
        pytest.param("t", lambda array: array + 10, id="level out of range"),
        pytest.param("y", lambda array: array[:-1], id="response missing"),
    ],
)
def test_sealed_arrays_that_do_not_fit_the_model_are_refused(
    name: str,
    change: Callable[[np.ndarray], np.ndarray],
    saved_bytes: bytes,
    tmp_path: Path,
) -> None:
    """At once, not at the first prediction."""
    arrays = _arrays(saved_bytes)
    path = tmp_path / "model.lvgp"
    path.write_bytes(_sealed(_npz_bytes(**arrays | {name: change(arrays[name])})))
    _refusal(path)


def test_manifest_nested_without_end_is_refused(saved_bytes: bytes, tmp_path: Path) -> None:
    arrays = _arrays(saved_bytes)
    arrays["manifest"] = np.frombuffer(b"[" * 100_000, dtype=np.uint8)
    path = tmp_path / "model.lvgp"
    path.write_bytes(_sealed(_npz_bytes(**arrays)))
    _refusal(path)


# Writing


@pytest.mark.parametrize("call", ["replace", "fsync", "chmod", "fdopen"])
def test_failed_write_leaves_the_old_file_and_nothing_else(
    call: str,
    model: lvgp.LVGPRegressor,
    other: lvgp.LVGPRegressor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "model.lvgp"
    model.save(path)
    before = path.read_bytes()

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            other.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.lvgp"]
    assert path.read_bytes() == before


def test_interrupted_write_leaves_the_old_file_and_nothing_else(
    model: lvgp.LVGPRegressor,
    other: lvgp.LVGPRegressor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "model.lvgp"
    model.save(path)
    before = path.read_bytes()

    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        other.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.lvgp"]
    assert path.read_bytes() == before


def test_the_file_is_complete_and_on_disk_before_it_gets_its_name(
    model: lvgp.LVGPRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.lvgp"
    synced: list[int] = []
    renamed: list[tuple[Path, bytes]] = []
    fsync, replace = os.fsync, os.replace

    def watch_fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        fsync(handle)

    def watch_replace(source: Any, target: Any) -> None:
        assert not path.exists()
        assert synced == [os.stat(source).st_ino]
        renamed.append((Path(source), Path(source).read_bytes()))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watch_fsync)
    monkeypatch.setattr(os, "replace", watch_replace)
    model.save(path)
    ((source, content),) = renamed
    assert source.parent == tmp_path
    assert content == path.read_bytes()


def test_saving_over_a_directory_fails_and_leaves_nothing(
    model: lvgp.LVGPRegressor, tmp_path: Path
) -> None:
    (tmp_path / "model.lvgp").mkdir()
    with pytest.raises(OSError, match=r"model\.lvgp"):
        model.save(tmp_path / "model.lvgp")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.lvgp"]


def test_saving_into_a_missing_directory_names_the_file_asked_for(
    model: lvgp.LVGPRegressor, tmp_path: Path
) -> None:
    path = tmp_path / "absent" / "model.lvgp"
    with pytest.raises(OSError, match="No such file or directory") as caught:
        model.save(path)
    assert caught.value.filename in (str(path), str(path.parent))


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_file_has_the_permissions_of_any_new_file(
    mask: int, model: lvgp.LVGPRegressor, tmp_path: Path
) -> None:
    before = os.umask(mask)
    try:
        model.save(tmp_path / "model.lvgp")
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert (tmp_path / "model.lvgp").stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("name", ["model", "model.lvgp", "a b.ü", "." + "n" * 200])
@pytest.mark.parametrize("kind", [str, Path])
def test_any_file_name_is_kept_as_it_is(
    name: str, kind: type, model: lvgp.LVGPRegressor, tmp_path: Path
) -> None:
    model.save(kind(tmp_path / name))
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert lvgp.load(kind(tmp_path / name)).seed_ == model.seed_


@pytest.mark.skipif(os.name != "posix", reason="needs fork and SIGKILL")
def test_killed_while_saving_the_file_is_still_whole(
    model: lvgp.LVGPRegressor, other: lvgp.LVGPRegressor, tmp_path: Path
) -> None:
    """Two models of a megabyte each take turns in one file; the writer is killed 60 times."""
    folder = tmp_path / "kept"
    folder.mkdir()
    for name, fit in {"first": model, "second": other}.items():
        saved = _read(fit, tmp_path)
        draws = dataclasses.replace(fit.draws_, vectors=np.repeat(fit.draws_.vectors, 8000, axis=0))
        posterior = dataclasses.replace(saved.posterior, draws=draws)
        store.write(tmp_path / name, dataclasses.replace(saved, posterior=posterior))
    script = """
        import itertools, os, random, shutil, signal, sys, time
        from pathlib import Path
        import lvgp
        from lvgp import store

        first, second, target = map(Path, sys.argv[1:])
        models = [store.read(first), store.read(second)]
        whole = {first.read_bytes(), second.read_bytes()}
        shutil.copy(first, target)
        for run in range(60):
            child = os.fork()
            if child == 0:
                for saved in itertools.cycle(models):
                    store.write(target, saved)
            time.sleep(random.Random(run).uniform(0.0, 0.06))
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the writer ended by itself"
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            lvgp.load(target)
            assert target.read_bytes() in whole, run
    """
    arguments = [str(tmp_path / "first"), str(tmp_path / "second"), str(folder / "model.lvgp")]
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), *arguments], check=True)
    lvgp.load(folder / "model.lvgp")
