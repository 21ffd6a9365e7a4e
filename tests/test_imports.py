"""What importing and using the library does to a program around it, and who may import whom."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import lvgp

PACKAGE = Path(lvgp.__file__).parent
ORDER = [
    "errors",
    "table",
    "files",
    "space",
    "priors",
    "compute",
    "progress",
    "kernels",
    "exact",
    "sparse",
    "model",
    "infer.draws",
    "infer.quasi_newton",
    "infer.optimize",
    "infer.inducing",
    "infer.chains",
    "infer.convergence",
    "infer.folds",
    "infer.metric",
    "infer.microcanonical",
    "infer.nuts",
    "infer.sample",
    "infer.variational",
    "infer.run",
    "mixture",
    "predictive",
    "posterior",
    "leave_one_out",
    "effects",
    "metrics",
    "plots",
    "interpret",
    "diagnostics",
    "export",
    "problems",
    "store",
    "options",
    "regressor",
    "report.findings",
    "report.figures",
    "report.page",
    "report.__init__",
    "study.cases",
    "study.builtin",
    "study.running",
    "study.results",
    "study.__init__",
    "console",
    "jobs",
    "study.command",
    "demo",
    "cli",
    "__init__",
]
HEAVY = ("jax", "numpyro", "torch", "dask", "sklearn", "matplotlib")


# Python run apart


def _run(script: str, folder: Path, **environment: str) -> str:
    """Run a script with a home directory of its own, and return what it printed."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LVGP_", "JAX_", "XDG_", "XLA_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PREAMBLE) + textwrap.dedent(script)],
        env=kept | {"HOME": str(home)} | environment,
        cwd=home,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


PREAMBLE = """
    import sys

    def table():
        import numpy as np
        import pandas as pd

        rng = np.random.default_rng(0)
        X = pd.DataFrame({"x": rng.random(12), "m": rng.permutation(list("abcd") * 3)})
        return X, np.sin(5 * X["x"]) + X["m"].map(ord) % 3

    def fit(restarts=1, **options):
        import lvgp

        options = {"method": "map", "random_state": 0, "progress": False} | options
        return lvgp.LVGPRegressor(restarts=restarts, **options).fit(*table())

    def use():
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fit()
            X, _ = table()
            model.predict_interval(X)
            model.sample_y(X, 2, random_state=0)
            model.parameters_
            return model.predict(X)

    def compile_in_scope(number):
        import jax
        from lvgp import compute

        with compute.scope():
            assert float(jax.jit(lambda v: v + number)(1.0)) == 1.0 + number

    def settings():
        import jax

        return dict(jax.config.values)

    def assert_untouched(before, x64):
        import jax
        import jax.numpy as jnp
        import numpy as np

        after = settings()
        assert after == before, {k: (before[k], after[k]) for k in after if after[k] != before[k]}
        assert jax.config.jax_enable_x64 is x64
        expected = "float64" if x64 else "float32"
        assert jnp.ones(2).dtype == expected
        assert jnp.asarray(np.ones(2)).dtype == expected
        assert jax.jit(lambda v: v * v)(np.ones(3)).dtype == expected
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One compilation cache for the scripts that are not about it, to save their time."""
    return str(tmp_path_factory.mktemp("cache"))


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# The public names


def test_importing_is_light(tmp_path: Path) -> None:
    script = f"""
        import lvgp
        print([name for name in {HEAVY} if name in sys.modules])
    """
    assert _run(script, tmp_path) == "[]"


@pytest.mark.parametrize(
    ("name", "heavy"),
    [
        ("errors", HEAVY),
        ("Priors", HEAVY),
        ("metrics", HEAVY),
        ("problems", ("jax", "numpyro", "torch", "dask", "matplotlib")),
        ("LVGPRegressor, load", ("torch", "dask", "matplotlib.pyplot")),
    ],
)
def test_a_public_name_brings_in_only_what_it_needs(
    name: str, heavy: tuple[str, ...], tmp_path: Path
) -> None:
    script = f"""
        from lvgp import {name}
        print([name for name in {heavy} if name in sys.modules])
    """
    assert _run(script, tmp_path) == "[]"


def test_importing_everything_changes_no_setting_of_jax(tmp_path: Path) -> None:
    script = """
        import jax
        before = settings()
        from lvgp import *
        import lvgp
        assert all(globals()[name] is getattr(lvgp, name) for name in lvgp.__all__)
        assert_untouched(before, x64=False)
    """
    _run(script, tmp_path)
    # Matplotlib keeps a list of fonts
    assert not [name for name in _files(tmp_path) if ".cache/matplotlib" not in str(name)]


@pytest.mark.parametrize("name", lvgp.__all__)
def test_public_name_resolves(name: str) -> None:
    value = getattr(lvgp, name)
    assert value is getattr(lvgp, name)
    assert name in dir(lvgp)
    namespace: dict[str, object] = {}
    exec(f"from lvgp import {name}", namespace)
    assert namespace[name] is value
    assert getattr(value, "__name__").split(".")[-1] == name  # noqa: B009 - a module or a class


def test_public_names_are_the_documented_ones() -> None:
    assert sorted(lvgp.__all__) == [
        "Diagnostics",
        "LVGPRegressor",
        "LatentMap",
        "Priors",
        "errors",
        "load",
        "metrics",
        "plots",
        "problems",
    ]


def test_dir_is_sorted_and_complete_before_anything_is_used(tmp_path: Path) -> None:
    script = """
        import lvgp
        names = dir(lvgp)
        assert names == sorted(set(names))
        assert {*lvgp.__all__, "__version__", "__all__", "__doc__"} <= set(names)
    """
    _run(script, tmp_path)


@pytest.mark.parametrize("name", ["LVGPClassifier", "lvgpregressor", "_missing", "Load"])
def test_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'lvgp' has no attribute '{name}'"):
        getattr(lvgp, name)
    assert not hasattr(lvgp, name)


def test_version_is_the_installed_one() -> None:
    from importlib.metadata import version

    assert lvgp.__version__ == version("lvgp")


# JAX belongs to the program around


def test_using_the_library_leaves_jax_as_it_was(cache: str, tmp_path: Path) -> None:
    """All settings, the type of new arrays, and arrays and compiled functions made before.

    Whether the program around works in single or in double precision, the library's numbers are
    the same.
    """
    script = """
        import jax, jax.numpy as jnp

        predicted = []
        for x64 in (False, True):
            jax.config.update("jax_enable_x64", x64)
            mine, twice = jnp.linspace(0, 1, 5), jax.jit(lambda v: 2 * v)
            kind = twice(mine).dtype
            before = settings()
            predicted.append(use())
            assert_untouched(before, x64)
            assert mine.dtype == kind == twice(mine).dtype == (mine + 1.5).dtype
        assert predicted[0].dtype == predicted[1].dtype == "float64"
        assert predicted[0].tobytes() == predicted[1].tobytes()
    """
    _run(script, tmp_path, LVGP_CACHE=cache)


def test_strict_settings_of_the_program_do_not_reach_the_library(
    cache: str, tmp_path: Path
) -> None:
    """Settings that make JAX refuse what the user's own code should not do."""
    script = """
        import jax

        expected = use()
        jax.config.update("jax_numpy_rank_promotion", "raise")
        jax.config.update("jax_numpy_dtype_promotion", "strict")
        jax.config.update("jax_debug_nans", True)
        before = settings()
        assert use().tobytes() == expected.tobytes()
        assert_untouched(before, x64=False)
    """
    _run(script, tmp_path, LVGP_CACHE=cache)


def test_an_exception_inside_leaves_jax_as_it_was(cache: str, tmp_path: Path) -> None:
    """Raised in a scope, in two of them nested, and by a search that fails in the midst of fit."""
    script = """
        import jax, pytest
        from lvgp import compute, errors
        import lvgp.infer.run as run

        before = settings()
        with pytest.raises(KeyboardInterrupt), compute.scope():
            raise KeyboardInterrupt
        assert_untouched(before, x64=False)
        with compute.scope():
            inside = settings()
            with pytest.raises(ZeroDivisionError), compute.scope():
                1 / 0
            assert settings() == inside != before
        assert_untouched(before, x64=False)

        def failing(*args):
            assert jax.config.jax_compilation_cache_dir
            raise errors.NumericalError("no mode")

        find_mode, run.find_mode = run.find_mode, failing
        with pytest.raises(errors.NumericalError):
            fit()
        assert_untouched(before, x64=False)
        run.find_mode = find_mode
        with pytest.raises(errors.InputError):
            fit().predict(table()[0].assign(m="unknown"))
        assert_untouched(before, x64=False)
        use()
        assert_untouched(before, x64=False)
    """
    _run(script, tmp_path, LVGP_CACHE=cache)


def test_two_threads_at_once_leave_jax_as_it_was(cache: str, tmp_path: Path) -> None:
    """And a third thread, the program's own, works in single precision all the while."""
    script = """
        import threading
        import jax, jax.numpy as jnp, numpy as np
        import lvgp

        before = settings()
        X, _ = table()
        expected = fit().predict(X)
        results, failures = [], []

        def work():
            try:
                for _ in range(3):
                    results.append(fit().predict(X))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        rounds = 0
        while any(thread.is_alive() for thread in threads) or rounds == 0:
            assert jax.config.jax_enable_x64 is False
            assert jnp.asarray(np.ones(2)).dtype == jnp.ones(3).dtype == "float32"
            rounds += 1
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert len(results) == 6
        assert all(result.tobytes() == expected.tobytes() for result in results)
        assert_untouched(before, x64=False)
    """
    _run(script, tmp_path, LVGP_CACHE=cache)


def test_scopes_that_overlap_in_threads_restore_jax_when_the_last_ends(
    cache: str, tmp_path: Path
) -> None:
    """The one that opened first closes first: the other still has its cache, then all is back."""
    script = """
        import threading
        import jax
        from lvgp import compute

        before = settings()
        opened, release = threading.Event(), threading.Event()
        seen = []

        def second():
            with compute.scope():
                opened.set()
                release.wait()
                seen.append(jax.config.jax_compilation_cache_dir)
                seen.append(jax.config.jax_enable_x64)

        thread = threading.Thread(target=second, daemon=True)
        with compute.scope():
            inside = jax.config.jax_compilation_cache_dir
            thread.start()
            opened.wait()
        assert jax.config.jax_enable_x64 is False
        release.set()
        thread.join()
        assert seen == [inside, True] and inside is not None
        assert_untouched(before, x64=False)
    """
    _run(script, tmp_path, LVGP_CACHE=cache)


def test_fits_that_overlap_in_threads_leave_the_blas_threads_as_they_were(
    cache: str, tmp_path: Path
) -> None:
    """A search limits BLAS to one thread; the first of two ends while the second goes on."""
    script = """
        import threading, time
        import numpy as np, scipy.linalg
        from threadpoolctl import threadpool_info

        def limits():
            return {
                pool["filepath"]: pool["num_threads"]
                for pool in threadpool_info()
                if pool["user_api"] == "blas"
            }

        import lvgp.regressor
        before = limits()
        if max(before.values(), default=1) == 1:
            print("BLAS has one thread here")
            raise SystemExit
        first = threading.Thread(target=fit, args=(4,), daemon=True)
        second = threading.Thread(target=fit, args=(60,), daemon=True)
        first.start()
        while first.is_alive() and max(limits().values()) > 1:
            pass
        second.start()
        first.join()
        second.join()
        assert limits() == before, (before, limits())
    """
    printed = _run(
        script, tmp_path, LVGP_CACHE="off", OPENBLAS_NUM_THREADS="4", MKL_NUM_THREADS="4"
    )
    if printed:
        pytest.skip(printed)


# The compilation cache


def test_cache_switched_off_writes_nothing(tmp_path: Path) -> None:
    script = """
        import jax
        fit()
        assert jax.config.jax_compilation_cache_dir is None
    """
    _run(script, tmp_path, LVGP_CACHE="off", XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert not _files(tmp_path)


@pytest.mark.parametrize("value", ["off", "OFF", "0", "no", "False"])
def test_words_that_switch_the_cache_off(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lvgp import compute

    monkeypatch.setenv(compute.CACHE_VARIABLE, value)
    assert compute.cache_directory() is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's places")
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "HOME/.cache/lvgp"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/lvgp"),
        ({"XDG_CACHE_HOME": ""}, "HOME/.cache/lvgp"),
        ({"XDG_CACHE_HOME": "relative"}, "HOME/.cache/lvgp"),
        ({"LVGP_CACHE": ""}, "HOME/.cache/lvgp"),
        ({"LVGP_CACHE": "/somewhere"}, "/somewhere"),
        ({"LVGP_CACHE": "~/mine", "XDG_CACHE_HOME": "/xdg"}, "HOME/mine"),
    ],
)
def test_where_the_cache_is(
    environment: Mapping[str, str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The XDG rule: an empty or relative XDG_CACHE_HOME counts as not set."""
    from lvgp import compute

    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("LVGP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert compute.cache_directory() == Path(expected.replace("HOME", str(tmp_path)))


def test_cache_named_by_the_variable_is_filled_and_used_again(tmp_path: Path) -> None:
    """A second process finds every program there and adds none."""
    place = tmp_path / "named" / "deep"
    script = """
        import jax
        print(fit().predict(table()[0]).tobytes().hex())
        assert jax.config.jax_compilation_cache_dir is None
    """

    def programs() -> set[str]:
        return {name for name in _files(place) if name.endswith("-cache")}

    expected = _run(script, tmp_path, LVGP_CACHE=str(place))
    made = programs()
    assert any("_search" in name for name in made)
    assert not _files(tmp_path / "home")
    assert _run(script, tmp_path, LVGP_CACHE=str(place)) == expected
    assert programs() == made


def test_damaged_cache_does_not_stop_the_work(tmp_path: Path) -> None:
    """Entries cut short, as a full disk or a killed process leaves them."""
    place = tmp_path / "cache"
    _run("compile_in_scope(1)", tmp_path, LVGP_CACHE=str(place))
    entries = list(place.glob("*-cache"))
    assert entries
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:100])
    _run("compile_in_scope(1)", tmp_path, LVGP_CACHE=str(place), PYTHONWARNINGS="ignore")


def test_programs_of_the_user_do_not_enter_the_librarys_cache(tmp_path: Path) -> None:
    """Neither after a fit, nor does a cache the user opens then miss what the user compiles."""
    place, mine = tmp_path / "library", tmp_path / "mine"
    script = f"""
        import os
        import jax, jax.numpy as jnp
        compile_in_scope(1)
        count = len(os.listdir({str(place)!r}))
        jax.jit(lambda v: jnp.sin(v) @ jnp.cos(v))(jnp.ones(7)).block_until_ready()
        assert len(os.listdir({str(place)!r})) == count
        jax.config.update("jax_compilation_cache_dir", {str(mine)!r})
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.jit(lambda v: jnp.cos(v) @ jnp.cos(v))(jnp.ones(7)).block_until_ready()
        assert os.listdir({str(mine)!r})
        assert len(os.listdir({str(place)!r})) == count
    """
    _run(script, tmp_path, LVGP_CACHE=str(place))


@pytest.mark.parametrize("by", ["update", "variable"])
def test_cache_of_the_user_is_respected(by: str, tmp_path: Path) -> None:
    """It stays set with its own thresholds, takes the library's programs, and no other is made."""
    mine, place = tmp_path / "mine", tmp_path / "library"
    script = f"""
        import jax
        if {by == "update"}:
            jax.config.update("jax_compilation_cache_dir", {str(mine)!r})
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.001)
        before = settings()
        compile_in_scope(1)
        assert_untouched(before, x64=False)
        assert jax.config.jax_compilation_cache_dir == {str(mine)!r}
        assert jax.config.jax_persistent_cache_min_compile_time_secs == 0.001
    """
    variables = {
        "JAX_COMPILATION_CACHE_DIR": str(mine),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.001",
    }
    _run(script, tmp_path, LVGP_CACHE=str(place), **(variables if by == "variable" else {}))
    assert any(name.endswith("-cache") for name in _files(mine))
    assert not place.exists()


def test_unusable_cache_directory_does_not_stop_the_work(tmp_path: Path) -> None:
    """And the settings are back after it: a later, usable directory is used."""
    occupied = tmp_path / "file"
    occupied.write_text("occupied")
    places = [str(occupied), str(occupied / "below"), "~nobody-of-this-name/cache"]
    script = f"""
        import os
        import jax
        before = settings()
        for place in {places}:
            os.environ["LVGP_CACHE"] = place
            compile_in_scope(1)
            assert_untouched(before, x64=False)
        os.environ["LVGP_CACHE"] = {str(tmp_path / "usable")!r}
        compile_in_scope(2)
        assert_untouched(before, x64=False)
    """
    _run(script, tmp_path)
    assert occupied.read_text() == "occupied"
    assert _files(tmp_path / "usable")


# Who imports whom


def _module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


MODULES = {_module(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _imports(module: str) -> Iterator[tuple[str, str | None]]:
    """Yield each import of this package in a module, anywhere in it: (module, name in it)."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "lvgp":
                    yield alias.name.removeprefix("lvgp").lstrip(".") or "__init__", None
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import in line {node.lineno}"
            origin = (node.module or "").split(".")
            if origin[0] != "lvgp":
                continue
            for alias in node.names:
                whole = ".".join([*origin[1:], alias.name])
                if whole in MODULES:
                    yield whole, None
                else:
                    yield ".".join(origin[1:]) or "__init__", alias.name


def test_the_walk_sees_the_imports_there_are() -> None:
    """A guard of the tests below: both ways of importing are found."""
    found = set(_imports("regressor"))
    assert {("store", None), ("compute", None), ("errors", "InputError")} <= found
    assert ("infer.run", "infer") in found
    assert sum(len(list(_imports(module))) for module in ORDER) > 40


def test_every_module_has_its_place_in_the_order() -> None:
    packages = {"infer.__init__"}
    assert set(MODULES) - packages == set(ORDER)
    for package in packages:
        assert not list(_imports(package)), f"{package} only names its package"


@pytest.mark.parametrize("module", ORDER)
def test_modules_import_only_from_above(module: str) -> None:
    above = set(ORDER[: ORDER.index(module)])
    assert {origin for origin, _ in _imports(module)} <= above


@pytest.mark.parametrize("module", ORDER)
def test_private_names_stay_in_their_module(module: str) -> None:
    """Neither imported by name, nor reached as `module._name`."""
    names = [name for _, name in _imports(module) if name is not None]
    assert not [name for name in names if name.startswith("_")]
    assert not [origin for origin, _ in _imports(module) if origin.split(".")[-1][0] == "_"]
    modules = {origin.split(".")[-1] for origin, name in _imports(module) if name is None}
    reached = [
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(ast.parse(MODULES[module].read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
        and node.attr.startswith("_")
    ]
    assert not reached


@pytest.mark.parametrize("module", MODULES)
def test_no_module_is_long(module: str) -> None:
    assert len(MODULES[module].read_text().splitlines()) <= 400


def test_news_of_other_packages_is_not_told_to_users(tmp_path):
    script = """
        import warnings

        warnings.simplefilter("error", FutureWarning)
        from lvgp.infer.convergence import import_arviz
        print(import_arviz().__name__)
    """
    assert _run(script, tmp_path) == "arviz"
