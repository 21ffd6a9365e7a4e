"""Running a study: every finished task is on disk at once, and running again goes on from there."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist

from lvgp import compute, metrics, problems
from lvgp.errors import InputError, LVGPWarning
from lvgp.files import write_text
from lvgp.interpret import LatentMap
from lvgp.priors import Priors
from lvgp.progress import progress_bar
from lvgp.regressor import LVGPRegressor
from lvgp.study.cases import Arm, Case, ProblemCase, Split, Study

_PACKAGES = ("lvgp", "jax", "numpy", "numpyro", "blackjax", "scipy")
_FINISHED = "done"


def run(
    study: Study,
    output: Path,
    *,
    seed: int = 0,
    jobs: int = 1,
    scheduler: str | None = None,
    data: Path | None = None,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Run the tasks of a study that have no result in `output` yet; return the results of all.

    Tasks run in `jobs` processes of this machine, or on the Dask cluster at `scheduler`. What a
    task computes depends on the study, the seed and its place in it only. A task that fails is
    recorded with its error, and tried again when the study is run again.
    """
    folder = output / "tasks"
    folder.mkdir(parents=True, exist_ok=True)
    _claim(study, seed, output)
    # a table that is missing or unfit is found out before the first fit, not after hours
    for case in study.cases:
        case.split(seed, 0, data)
    pending = [task for task in study.tasks() if _read(folder, *task).get("status") != _FINISHED]
    truths = {case.name: truth_of(case) if study.maps else None for case in study.cases}
    calls = (
        joblib.delayed(_numbered)(
            number, arm, case.split(seed, replicate, data), truths[case.name], jobs
        )
        for number, (case, arm, replicate) in enumerate(pending)
    )
    with (
        warnings.catch_warnings(),
        _backend(jobs, scheduler),
        progress_bar(study.name, len(pending), progress) as advance,
    ):
        # joblib renews workers that have grown, as they do with every compiled program
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
        for number, found in joblib.Parallel(return_as="generator_unordered")(calls):
            case, arm, replicate = pending[number]
            place = {"study": study.name, "case": case.name, "arm": arm.name}
            place |= {"method": arm.method, "rows": case.rows, "replicate": replicate, "seed": seed}
            _write(_path(folder, case, arm, replicate), place | found)
            advance()
    return [found for task in study.tasks() if (found := _read(folder, *task))]


def stored(output: Path) -> list[dict[str, Any]]:
    """Return all results that a folder holds."""
    paths = sorted((output / "tasks").glob("[!.]*.json"))
    return [json.loads(path.read_text()) for path in paths]


def _numbered(number: int, *task: Any) -> tuple[int, dict[str, Any]]:
    return number, perform(*task)


@contextmanager
def _backend(jobs: int, scheduler: str | None) -> Iterator[None]:
    if scheduler is None:
        with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
            yield
        return
    try:
        from dask.distributed import Client
    except ImportError:
        raise InputError("the dask backend needs: pip install 'lvgp[cluster]'") from None
    try:
        client = Client(scheduler, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(f"{scheduler}: no Dask scheduler answers there ({error})") from None
    with client, joblib.parallel_config("dask"):
        yield


def perform(arm: Arm, split: Split, truth: Truth | None, jobs: int) -> dict[str, Any]:
    """Fit one arm to one split and score it; an error is returned, not raised."""
    begun = time.time()
    common = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun)),
        "machine": f"{platform.node()} {platform.machine()} {os.cpu_count()} cores",
        "versions": {package: version(package) for package in _PACKAGES},
    }
    with warnings.catch_warnings(), _few_cores(max(1, compute.cores() // jobs)):
        warnings.simplefilter("ignore", LVGPWarning)
        try:
            found = _scores(arm, split, truth)
        # whatever went wrong is recorded, and the other tasks go on
        except Exception as error:
            return common | {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    return common | {"status": _FINISHED} | found


@contextmanager
def _few_cores(count: int) -> Iterator[None]:
    """Let a fit use its share of the cores only, so that jobs do not fight over them."""
    before = os.environ.get(compute.CORES_VARIABLE)
    os.environ[compute.CORES_VARIABLE] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ[compute.CORES_VARIABLE]
        else:
            os.environ[compute.CORES_VARIABLE] = before


def _scores(arm: Arm, split: Split, truth: Truth | None) -> dict[str, Any]:
    options = dict(arm.options)
    if "priors" in options:
        options["priors"] = Priors(**options["priors"])
    train, test, columns = split.X, split.X_test, dict(split.options)
    if split.descriptors:
        names = list(split.descriptors)
        train, test = (
            (part[names] if arm.descriptors else part.drop(columns=names)) for part in (train, test)
        )
    if arm.descriptors:
        columns = {}
    model = LVGPRegressor(**options, **columns, random_state=0, progress=False)
    begun = time.perf_counter()
    model.fit(train, split.y)
    fitted = time.perf_counter()
    interval = model.predict_interval(test)
    sd = np.maximum(np.asarray(model.predict(test, return_std=True)[1]), 1e-12)
    mean, y = interval["mean"].to_numpy(), split.y_test
    lower, upper = interval["lower"].to_numpy(), interval["upper"].to_numpy()
    found = {
        "rrmse": metrics.rrmse(y, mean),
        "interval_score": metrics.mean_interval_score(y, lower, upper),
        "coverage": metrics.coverage(y, lower, upper),
        "crps": metrics.crps(y, mean, sd),
        "nlpd": metrics.nlpd(y, mean, sd),
        "verdict": model.diagnostics_.verdict,
        "fit_seconds": fitted - begun,
        "predict_seconds": time.perf_counter() - fitted,
    }
    if truth is not None:
        found |= map_scores(model.latent_map("t"), truth)
    return {
        name: value if isinstance(value, str) else _plain(value) for name, value in found.items()
    }


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


class Truth(NamedTuple):
    """The values behind a problem's levels."""

    grid: np.ndarray
    """One column for each, scaled by the sd of its main effect on the response."""
    first: np.ndarray
    """The first of them as it is."""


def map_scores(latent: LatentMap, truth: Truth) -> dict[str, Any]:
    """Return how near a latent map comes to the true values behind the levels, and the map.

    within_between: mean distance of levels that share the first true value over that of levels
    that do not. procrustes: correlation with the true grid, its axes scaled by their effect.
    """
    points = latent.coordinates.to_numpy()
    apart, same = pdist(points), pdist(truth.first[:, None]) == 0
    dim = max(points.shape[1], truth.grid.shape[1])
    padded = [np.pad(part, ((0, 0), (0, dim - part.shape[1]))) for part in (truth.grid, points)]
    disparity = procrustes(*padded)[2]
    return {
        "within_between": float(apart[same].mean() / apart[~same].mean()),
        "procrustes": float(np.sqrt(max(0.0, 1.0 - disparity))),
        "coordinates": points,
    }


def truth_of(case: Case) -> Truth:
    """Return the values behind the levels of a test problem."""
    if not isinstance(case, ProblemCase):
        raise InputError(f"{case.name}: latent maps can be scored for test problems only")
    problem = getattr(problems, case.problem)()
    values = problem.levels_truth
    X, _ = problem.sample(4000, seed=0)

    def effect(name: str) -> float:
        groups = (values.index[values[name] == value] for value in np.unique(values[name]))
        return float(
            np.std([problem(X.assign(t=np.resize(group, len(X)))).mean() for group in groups])
        )

    scaled = [
        effect(name) * (values[name] - values[name].mean()) / values[name].std() for name in values
    ]
    return Truth(np.stack(scaled, axis=1), values.iloc[:, 0].to_numpy())


def _claim(study: Study, seed: int, output: Path) -> None:
    """Refuse a folder that holds results of something else: they would be mixed."""
    told: dict[str, Any] = {"study": study.name, "seed": seed}
    known: dict[str, str] = {}
    path = output / "study.json"
    if path.exists():
        held = json.loads(path.read_text())
        known = held.get("arms", {})
        changed = [
            arm.name
            for arm in study.arms
            if arm.name in known and known[arm.name] != _fingerprint(arm)
        ]
        if held.get("study") != study.name or held.get("seed") != seed or changed:
            raise InputError(
                f"{output}: holds results of study {held.get('study')!r} with seed "
                f"{held.get('seed')}{' and other settings of ' + changed[0] if changed else ''}; "
                "choose another output folder"
            )
    told["arms"] = known | {arm.name: _fingerprint(arm) for arm in study.arms}
    _write(path, told)


def _fingerprint(arm: Arm) -> str:
    return json.dumps(dataclasses.asdict(arm), sort_keys=True, default=str)


def _path(folder: Path, case: Case, arm: Arm, replicate: int) -> Path:
    return folder / f"{case.name}--{arm.name}--{replicate:04d}.json"


def _read(folder: Path, case: Case, arm: Arm, replicate: int) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(_path(folder, case, arm, replicate).read_text())
    except FileNotFoundError:
        return {}
    return found


def _write(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, default=_plain))
