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
_OTHER_FORMS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "model_weights.json",
    "artifacts/model_weights.json",
    "moeflux.json",
)
_USUAL = "Q4_K_M"
_NO_MODEL = re.compile(r"mmproj|imatrix|text\.gguf$", re.I)
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
    files = sorted(p for p in snapshot.rglob("*.gguf") if _is_model(p.name))
    if choice is None and (not files or any((snapshot / form).exists() for form in _OTHER_FORMS)):
        return snapshot
    chosen = files
    if choice is not None or len(files) > 1:
        wanted = choice or _USUAL
        chosen = [p for p in files if _is_chosen(p.relative_to(snapshot).as_posix(), wanted)]
    if choice is None and len(chosen) != 1:
        chosen = files
    if len(chosen) != 1:
        raise _missing(name, f"{len(chosen)} GGUF models in the hub's cache are called so")
    return chosen[0]


def _is_model(file: str) -> bool:
    """The first part of a GGUF model, as the program knows them."""
    return not _LATER_PART.search(file) and not _NO_MODEL.match(file)


def _is_chosen(file: str, choice: str) -> bool:
    """By its path (any part names all of them), or a word of it."""
    if choice.lower().endswith(".gguf"):
        return file == re.sub(r"-\d{5}(-of-\d{5}\.gguf)$", r"-00001\1", choice)
    return re.search(rf"(?:^|[-._/]){re.escape(choice)}(?:$|[-./])", file, re.I) is not None


def _missing(name: str, why: str) -> NotFoundError:
    return NotFoundError(f"{name}: {why} ({cache()}); 'moeflux pull {name}' fetches it")


def model_path(given: PathLike) -> PathLike:
    """What the library can open: a path that is there as it stands, and what cannot be ORG/NAME;
    else what the cache holds."""
    text: Optional[str] = given if isinstance(given, str) else None
    if text is None or os.path.exists(text) or _NAME.fullmatch(text) is None:
        return given
    return find(text)
