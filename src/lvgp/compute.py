"""Where computation happens: double precision and a compilation cache, scoped to this library.

JAX's settings belong to the user's program. Everything numeric here runs inside `scope()`, which
switches them for the duration of the call and puts them back.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from threadpoolctl import threadpool_limits

CACHE_VARIABLE = "LVGP_CACHE"
CORES_VARIABLE = "LVGP_CORES"
_DIRECTORY = "jax_compilation_cache_dir"
_SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
}
ONE_THREAD = {
    "xla_cpu_multi_thread_eigen": False,
    "xla_cpu_enable_concurrency_optimized_scheduler": False,
}
"""Compiler options of programs that run side by side, one on each core."""


class _Shared:
    """A context of the whole process: entered by the first to ask, left by the last.

    JAX and BLAS keep these settings per process, so threads at work at the same time share them.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._users = 0
        self._entered = ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._users == 0:
                self._entered.enter_context(self._make())
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._entered.close()


@contextmanager
def scope() -> Iterator[None]:
    """Run a block in double precision with the persistent compilation cache."""
    with (
        jax.enable_x64(True),
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
        _shared_cache(),
    ):
        yield


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep LAPACK to one thread, where threads of this library work side by side instead."""
    with _shared_blas_limit():
        yield


def cores() -> int:
    """Return how many cores this process may use; the variable LVGP_CORES lowers that."""
    limit = os.environ.get(CORES_VARIABLE, "")
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    return min(allowed, int(limit)) if limit.isdigit() and int(limit) > 0 else allowed


def padded_batch(rows: np.ndarray) -> np.ndarray:
    """Repeat the last of many rows until their number is a power of two, 64 or more.

    Batches of all sizes then share a few compiled programs.
    """
    size = 64
    while size < len(rows):
        size *= 2
    return np.pad(rows, ((0, size - len(rows)), (0, 0)), mode="edge")


def cache_directory() -> Path | None:
    """Return where compiled programs are kept between processes, or None when switched off.

    The variable LVGP_CACHE names another directory, or "off".
    """
    setting = os.environ.get(CACHE_VARIABLE, "")
    if setting.lower() in {"off", "0", "no", "false"}:
        return None
    try:
        return Path(setting).expanduser() if setting else _user_cache() / "lvgp"
    except RuntimeError:
        return None


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return base if base.is_absolute() else Path.home() / ".cache"


@contextmanager
def _persistent_cache() -> Iterator[None]:
    """Point JAX at the cache, unless the user has a cache of their own."""
    directory = cache_directory()
    if directory is None or _setting(_DIRECTORY) or not _is_writable(directory):
        yield
        return
    ours = _SETTINGS | {_DIRECTORY: str(directory)}
    before = {name: _setting(name) for name in ours}
    for name, value in ours.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        for name, value in before.items():
            if _setting(name) == ours[name]:
                jax.config.update(name, value)
        compilation_cache.reset_cache()


_shared_cache = _Shared(_persistent_cache)
_shared_blas_limit = _Shared(lambda: threadpool_limits(1, "blas"))


def _setting(name: str) -> Any:
    return getattr(jax.config, name)


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)
