"""Checkpoints: whole or not there at all, safe to load, and found again by a run that torchrun restarted."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import torch

NEWEST = "checkpoint.pth.tar"
BEST = "model_best.pth.tar"


def save_checkpoint(folder: Path, state: dict[str, Any], *, is_best: bool = False) -> None:
    """Write `state` as the newest checkpoint. A crash at any moment leaves the old one or the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{NEWEST}.partial"
    with open(partial, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    if is_best:
        partial_best = folder / f"{BEST}.partial"
        shutil.copyfile(partial, partial_best)
        os.replace(partial_best, folder / BEST)
    os.replace(partial, folder / NEWEST)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint into host memory. Nothing in it is executed, whoever wrote it.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the file is no checkpoint of these recipes.
    """
    path = path / NEWEST if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"--resume: there is no checkpoint {path}; give the file, or an --output-dir")
    state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or "position" not in state:
        raise ValueError(f"--resume: {path} was not written by these recipes; use --pretrained for plain weights")
    return state


def checkpoint_to_resume(folder: Path, asked: str | None) -> Path | None:
    """The checkpoint to go on with: this torchrun job's own, after a restart; else the one asked for."""
    newest = folder / NEWEST
    job = job_name()
    if job is not None and newest.is_file() and load_checkpoint(newest)["job"] == job:
        return newest
    if asked and Path(asked).resolve() == folder.resolve() and not newest.exists():
        # "Go on where you write": the first run of a job has nothing to go on with.
        return None
    return Path(asked) if asked else None


def job_name() -> str | None:
    """What stays the same when torchrun restarts its processes, and no longer; None without torchrun.

    TORCHELASTIC_RESTART_COUNT would not do: it does not count the restarts for machines that came or went.
    """
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    if run_id is None:
        return None
    # Every torchrun without --rdzv-id or --standalone has the same one.
    return run_id if run_id != "none" else f"{socket.gethostname()}:{os.getppid()}"
