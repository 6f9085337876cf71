# SPDX-License-Identifier: MIT
"""Models by the names that hubs have for them: where the cache that `moeflux pull` and
huggingface_hub share holds them. Nothing is fetched."""
from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Optional

from ._native import PathLike
from .errors import NotFoundError

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
_NAME = re.compile(rf"({_PART})/({_PART})(?:@([A-Za-z0-9_./-]+))?(?::([A-Za-z0-9_./ -]+))?")
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


def cache() -> Path:
    """The hub's cache, by the environment as huggingface_hub reads it."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return Path(named).expanduser()
    home = os.environ.get("HF_HOME")
    if not home:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        home = os.path.join(base, "huggingface")
    return Path(home).expanduser() / "hub"


def find(name: str) -> Path:
    """Where the cache holds ORG/NAME[@REVISION][:FILE or :QUANT]; NotFoundError where it does not."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise NotFoundError(f"{name}: neither a path nor ORG/NAME of a model")
    org, repo, revision, choice = match.groups()
    folder = cache() / f"models--{org}--{repo}"
    revision = revision or "main"
    if ".." in revision.split("/") or not folder.is_dir():
        raise _missing(name, "neither a path nor a model in the hub's cache")
    ref = folder / "refs" / revision
    commit = ref.read_text().strip() if ref.is_file() else revision
    snapshot = folder / "snapshots" / commit
    if not commit or not snapshot.is_dir():
        raise _missing(name, "the hub's cache has not all of it")
    files = sorted(p for p in snapshot.rglob("*.gguf") if not _LATER_PART.search(p.name))
    if choice is None:
        return files[0] if len(files) == 1 and not (snapshot / "config.json").exists() else snapshot
    chosen = [p for p in files if _is_chosen(p.relative_to(snapshot).as_posix(), choice)]
    if len(chosen) != 1:
        raise _missing(name, f"{len(chosen)} GGUF models in the hub's cache are called so")
    return chosen[0]


def _is_chosen(file: str, choice: str) -> bool:
    """By its path, or a word of its name."""
    stem = re.sub(r"(-\d{5}-of-\d{5})?\.gguf$", "", file.rsplit("/", 1)[-1]).lower()
    wanted = choice.lower()
    return file == choice or stem == wanted or stem.endswith((f"-{wanted}", f".{wanted}"))


def _missing(name: str, why: str) -> NotFoundError:
    return NotFoundError(f"{name}: {why} ({cache()}); 'moeflux pull {name}' fetches it")


def model_path(given: PathLike) -> PathLike:
    """What the library can open: a path that is there as it stands, and what cannot be ORG/NAME;
    else what the cache holds."""
    text: Optional[str] = given if isinstance(given, str) else None
    if text is None or os.path.exists(text) or _NAME.fullmatch(text) is None:
        return given
    return find(text)
