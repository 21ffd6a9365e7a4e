"""Where computation happens: double precision and a compilation cache, scoped to this library.

JAX's settings belong to the user's program. Everything numeric here runs inside `scope()`, which
switches them for the duration of the call and puts them back.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

CACHE_VARIABLE = "LVGP_CACHE"
_DIRECTORY = "jax_compilation_cache_dir"
_SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
}
_lock = threading.Lock()
_open_scopes = 0
_saved: dict[str, object] = {}


def cache_directory() -> Path | None:
    """Return where compiled programs are kept between processes, or None when switched off.

    The variable LVGP_CACHE names another directory, or "off".
    """
    setting = os.environ.get(CACHE_VARIABLE, "")
    if setting.lower() in {"off", "0", "no", "false"}:
        return None
    if setting:
        return Path(setting).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "lvgp"


@contextmanager
def scope() -> Iterator[None]:
    """Run a block in double precision with the persistent compilation cache."""
    with jax.enable_x64(True):
        _open_cache()
        try:
            yield
        finally:
            _close_cache()


def _open_cache() -> None:
    """Point JAX at the cache when the first scope opens, unless the user has a cache of their own.

    JAX keeps these settings per process, so scopes open at the same time share them.
    """
    global _open_scopes
    with _lock:
        _open_scopes += 1
        directory = cache_directory()
        if _open_scopes > 1 or directory is None or _setting(_DIRECTORY):
            return
        if not _is_writable(directory):
            return
        _saved.update({name: _setting(name) for name in _SETTINGS})
        _saved[_DIRECTORY] = None
        for name, value in _SETTINGS.items():
            jax.config.update(name, value)
        jax.config.update(_DIRECTORY, str(directory))
        compilation_cache.reset_cache()


def _close_cache() -> None:
    global _open_scopes
    with _lock:
        _open_scopes -= 1
        if _open_scopes or not _saved:
            return
        for name, value in _saved.items():
            jax.config.update(name, value)
        _saved.clear()
        compilation_cache.reset_cache()


def _setting(name: str) -> object:
    return getattr(jax.config, name)


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)
