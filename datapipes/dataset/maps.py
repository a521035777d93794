"""Neighbouring maps run as one: a stage costs a call, and every error is settled in one place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datapipes.dataset.chain import Map
from datapipes.dataset.randomness import mixed, seed_all
from datapipes.on_error import Skipped, settle
from datapipes.pipe import Placed, key_of


def run_maps(placed: Iterator[Placed], maps: list[Map], seed: int, epoch: int) -> Iterator[Placed]:
    """Each sample through all of `maps`; the random state is set where the first user function runs.

    A loop of 50 ns a stage and sample, against 900 to 1,600 ns for a chain of core's pipes.
    """
    first = next((number for number, stage in enumerate(maps) if stage.by_user), len(maps))
    before = [stage.function for stage in maps[:first]]
    after = [stage.function for stage in maps[first:]]
    for place, item in placed:
        if type(item) is Skipped:
            yield place, item
            continue
        result, function = item, None
        try:
            for function in before:
                result = function(result)
            if after:
                seed_all(mixed(seed, epoch, place))
                for function in after:
                    result = function(result)
                    if type(result) is Skipped:
                        break
        except Exception as error:
            failed = next(stage for stage in maps if stage.function is function)
            result = settle_failure(failed, key_of(item), error)
        yield place, result


def settle_failure(stage: Map, key: str, error: Exception) -> Any:
    """Name the stage and the sample behind an error of the user's own function, then settle it."""
    if stage.by_user and hasattr(error, "add_note"):
        error.add_note(f"as_dataset: raised by {stage.name} for {key}")
    return settle(stage.on_error, key, error)
