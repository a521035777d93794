"""The tutorials run as pasted, from a copy of recipes/imagenette, against a real Cassandra and a real Spark."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from torchrun import Torchrun

from datapipes.catalog.row_file import load_row_file
from datapipes.load.cassandra_session import cassandra_session
from recipes.local_process import LocalProcess, free_port

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(cassandra, tmp_path, monkeypatch) -> Iterator[Path]:
    """A copy of recipes/imagenette to run in, with the environment of somebody who uses this server."""
    copy = tmp_path / "imagenette"
    shutil.copytree(ROOT / "recipes" / "imagenette", copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(copy)
    monkeypatch.syspath_prepend(str(copy))
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"])
    for name, value in {"CASSANDRA_HOSTS": cassandra.hosts[0], "CQLSH_HOST": cassandra.hosts[0]}.items():
        monkeypatch.setenv(name, value)
    for name in ("CASSANDRA_PORT", "CQLSH_PORT"):
        monkeypatch.setenv(name, str(cassandra.port))
    yield copy
    sys.modules.pop("extract_common", None)
    with cassandra_session(cassandra.server, "test") as session:
        for keyspace in ("imagenette", "imagenet"):
            session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}", timeout=60)


def commands_of(page: str, replacements: dict[str, str]) -> list[str]:
    """Every command of the page's bash blocks, with the reader's own folders in place of the page's."""
    text = "".join(block[1] for block in BLOCK.finditer((ROOT / "docs" / "tutorials" / page).read_text()))
    for old, new in replacements.items():
        text = text.replace(old, new)
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def run(command: str, capsys: pytest.CaptureFixture[str], folder: Path) -> str:
    """Run a command as bash would, Python's in this process, which has imported torch already."""
    words = shlex.split(command)
    if words[0] == "torchrun":
        log = folder / "torchrun.log"
        log.unlink(missing_ok=True)
        started = Torchrun(words[1:], log)
        assert started.wait(120) == 0, started.output
        return started.output
    if words[0] == "python3":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", words[1:])
            try:
                runpy.run_path(words[1], run_name="__main__")
            except SystemExit as end:
                assert not end.code, command
        return capsys.readouterr().out
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{ended.stderr[-5000:]}"
    return ended.stdout


@pytest.fixture
def spark(tmp_path, monkeypatch) -> Iterator[str]:
    """A Spark master with one worker; its URL."""
    # The serial collector and the first compiler alone: half the CPU for each of six short-lived Javas.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    port, ui_port = free_port(), free_port()
    command = ["spark-class", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]

    def listens() -> bool:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True

    def has_worker() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{ui_port}/json/", timeout=5) as answer:
            return b'"aliveworkers" : 1' in answer.read()

    (tmp_path / "spark").mkdir()
    master = LocalProcess(
        "spark-master", [*command, "--port", str(port), "--webui-port", str(ui_port)],
        is_ready=listens, folder=tmp_path / "spark", environment={"SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    with master:
        worker = LocalProcess(
            "spark-worker",
            ["spark-class", "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0",
             "--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "spark"), f"spark://127.0.0.1:{port}"],
            is_ready=has_worker, folder=tmp_path / "spark", environment={"SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
        with worker:
            yield f"spark://127.0.0.1:{port}"


def test_the_imagenette_tutorial_runs_from_top_to_bottom(folder, samples, spark, capsys):
    replacements = {
        "/tmp/imagenette2-320": str(samples),
        "/data/imagenet/": f"{samples}/",
        "spark://$HOSTNAME:7077": spark,
        # Two cores need no ten jobs, and this machine's name may lead nowhere.
        "parallelism=10": "parallelism=2 --conf spark.driver.host=127.0.0.1 --conf spark.ui.enabled=false",
    }
    commands = commands_of("imagenette.md", replacements)
    said = {command: run(command, capsys, folder) for command in commands}
    for command, output in said.items():
        if "extract_s" in command:
            images = 48 if "subdir=train" in command else 12
            assert f"{images} images written, 0 were there before; {images} counted in 4 classes" in output
        elif "loop_read" in command:
            assert "average of 9 epochs: " in output and "epoch 9: 48 images" in output
    assert len(load_row_file(str(folder / "train.rows")).keys) == 48
    assert {name.partition(".")[0] for name in os.listdir(folder) if name.endswith(".classes.json")} == {
        "imagenette",
        "imagenet",
    }


def test_the_split_file_tutorial_runs_from_top_to_bottom(folder, samples, capsys):
    sizes = []
    for command in commands_of("split_file.md", {"/tmp/imagenette2-320": str(samples)}):
        said = run(command, capsys, folder)
        if "--help" in command:
            for option in ("-k, --keyspace", "-s, --table-suffix", "-i, --id-col", "-d, --data-col", "-l, --label-col",
                           "-t, --label-type", "--metadata-ifn", "--metadata-ofn", "-o, --split-ofn",
                           "-r, --split-ratio", "-b, --balance", "--seed"):  # fmt: skip
                assert re.search(option.replace(", ", " .*"), said) or option in said
        elif "create_split" in command:
            made = load_row_file("imagenette_splitfile.pckl")
            sizes.append([len(split) for split in made.splits])
            assert made.source.table == "imagenette.data_train_256_jpg" and made.source.id_col == "patch_id"
            assert made.num_classes == 4
    assert sizes == [[38, 10], [38, 10], [38, 10], [10, 38]]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (
            ["extract_serial.py", "/tmp", "--data-table=a.b", "--metadata-table=a.c", "--img-size=9"],
            "needs --img-format",
        ),
        (["loop_read.py"], "--reader cassandra needs --rows-fn"),
        (["loop_read.py", "--reader=file"], "--reader file needs --file-root"),
        (["create_split.py", "-o", "x"], "give --keyspace and --table-suffix, or --metadata-ifn"),
    ],
)
def test_options_that_do_not_fit_say_so(folder, arguments, what, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit):
        runpy.run_path(arguments[0], run_name="__main__")
    assert what in capsys.readouterr().err
