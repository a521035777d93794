"""Functional forms: registered beside core's and torchdata's, known to editors and to mypy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from datapipes.iter import IterableWrapper
from datapipes.iter.write_stub import STUB, stub
from datapipes.pipe import Pipe, functional_form

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def torchdata_0_9(tmp_path_factory) -> Path:
    """A folder that, put on PYTHONPATH, gives the last torchdata that had pipes."""
    folder = tmp_path_factory.mktemp("torchdata")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "--quiet", "--target", folder, "--no-deps", "torchdata==0.9.0"], check=True)
    return folder


def run_beside(torchdata: Path, code: str) -> str:
    paths = os.pathsep.join([str(torchdata), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


OURS = "from datapipes.iter import IterableWrapper, S3FileLister"
THEIRS = "import torchdata.datapipes.iter"
PRINT = """
import torchdata
pipe = IterableWrapper(["s3://b/"]).list_files_by_s3(masks="*.jpg")
print(torchdata.__version__.split("+")[0], type(pipe).__module__, type(IterableWrapper(["x"]).cycle()).__module__)
"""


@pytest.mark.parametrize("imports", [(OURS, THEIRS), (THEIRS, OURS)], ids=["ours first", "theirs first"])
def test_ours_and_the_old_torchdata_live_together_in_either_order(torchdata_0_9, imports):
    printed = run_beside(torchdata_0_9, "\n".join(imports) + PRINT)
    assert printed == "0.9.0 datapipes.catalog.list_s3 torchdata.datapipes.iter.util.cycler"


def test_our_signatures_are_supersets_of_the_old_torchdatas(torchdata_0_9):
    code = f"""
{OURS}, S3FileLoader, Prefetcher, FSSpecFileLister
import inspect, torchdata.datapipes.iter as theirs
for ours in (S3FileLister, S3FileLoader, Prefetcher, FSSpecFileLister):
    old = inspect.signature(getattr(theirs, ours.__name__)).parameters
    new = inspect.signature(ours).parameters
    named = [name for name, parameter in old.items() if parameter.kind is not parameter.VAR_KEYWORD]
    if list(new)[:len(named)] != named: print(ours.__name__, named, list(new))
"""
    assert run_beside(torchdata_0_9, code) == ""


def test_a_name_of_cores_cannot_be_taken_by_mistake():
    with pytest.raises(ValueError, match="'map' already belongs to torch"):

        @functional_form("map")
        class Mapper(Pipe[int]):
            pass


def test_the_stub_is_what_the_pipes_say():
    assert STUB.read_text() == stub(), "run: make stubs"


def test_mypy_knows_the_forms_and_rejects_a_misspelt_keyword(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from datapipes.iter import IterableWrapper\n"
        "keys = IterableWrapper(['s3://b/train/']).list_files_by_s3(masks='*.jpg').shuffle().sharding_filter()\n"
        "keys.load_files_by_s3(max_in_fligth=3)\n"
        "reveal_type(keys.map(len).batched(3))\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", script],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert '"max_in_fligth"' in result.stdout
    assert "datapipes.pipe.Pipe[Any]" in result.stdout
    errors = [line for line in result.stdout.splitlines() if "script.py" in line and "error:" in line]
    assert len(errors) == 1 and "script.py:3:" in errors[0]


def test_core_pipes_chain_with_ours():
    chain = IterableWrapper(["a/1", "a/2", "a/3"]).distribute(shuffle=False).map(str.upper).batch(2)
    assert [list(batch) for batch in chain] == [["A/1", "A/2"], ["A/3"]]
