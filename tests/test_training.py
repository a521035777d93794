"""The training recipes as users run them: torchrun, real processes, real kills, real resumes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import torch
from torch.utils.data import DataLoader
from torchrun import Torchrun
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from recipes import distrib_train_from_file, distrib_train_from_s3
from recipes.checkpoint import checkpoint_to_resume, load_checkpoint
from recipes.learning_rate import learning_rate
from recipes.model import build_model
from recipes.sample_images import write_sample_images
from recipes.transforms import DEVIATION, MEAN, image_transform

SCRIPT = Path(distrib_train_from_file.__file__)
# 48 images are a whole number of global batches of 2, 4 and 6 from each place at which a checkpoint is written.
OPTIONS = "-a resnet10 --image-size 64 -b 2 --lr 0.1 --epochs 2 -p 1 --checkpoint-freq 3 --workers {workers}"
TIMEOUT_S = 120


@dataclass
class Run:
    """A training run that has ended."""

    folder: Path
    output: str
    status: int

    @property
    def checkpoint(self) -> dict:
        return load_checkpoint(self.folder)


class Training:
    """A training run under way."""

    def __init__(self, images: Path, folder: Path, processes: int, *options: str, workers: int = 0) -> None:
        self.folder = folder
        launcher = ["--standalone", "--max-restarts=1", f"--nproc_per_node={processes}"]
        command = [*launcher, SCRIPT, images, "--output-dir", folder, *OPTIONS.format(workers=workers).split()]
        self.process = Torchrun([*command, *options], folder.with_suffix(".log"))

    @property
    def output(self) -> str:
        return self.process.output

    def wait_for(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self.output.count(text) < times:
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def finished(self) -> Run:
        status = self.process.wait(TIMEOUT_S)
        return Run(self.folder, self.output, status)

    def rank(self, number: int) -> psutil.Process:
        """The process of one rank."""
        return next(child for child in self.process.children() if child.environ().get("RANK") == str(number))

    def kill(self, ranks: list[psutil.Process]) -> Run:
        """End torchrun and the training processes with no chance to clean up; their workers have to see it."""
        # The search for workers takes longer than a step of training.
        for rank in ranks:
            rank.suspend()
        workers = [worker for rank in ranks for worker in rank.children(recursive=True)]
        for each in [self.process, *ranks]:
            each.kill()
        deadline = time.monotonic() + TIMEOUT_S
        while any(is_alive(worker) for worker in workers):
            assert time.monotonic() < deadline, workers
            time.sleep(0.1)
        return self.finished()


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 to train; 11 to validate, which no number of processes divides."""
    folder = tmp_path_factory.mktemp("images")
    return write_sample_images(folder, classes=4, images=48, val_images=11, size=(80, 64))


@pytest.fixture(scope="module")
def started(images: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Training]:
    """Two epochs by two processes, twice: for `whole` and `interrupted`, side by side, for both wait a lot."""
    folders = [tmp_path_factory.mktemp(name) / "run" for name in ("whole", "interrupted")]
    return [Training(images, folder, 2, workers=workers) for workers, folder in enumerate(folders)]


@pytest.fixture(scope="module")
def interrupted(started: list[Training]) -> Run:
    """Told to stop in epoch 0, started again by torchrun, and killed in epoch 1."""
    training = started[1]
    training.wait_for("Epoch: [0][ 4/12]")
    # The whole process group, workers included, as Slurm and systemd do.
    os.killpg(training.rank(1).pid, signal.SIGTERM)
    training.wait_for("Resumed from")
    ranks = training.process.children()
    training.wait_for("Epoch: [1][ 4/12]")
    return training.kill(ranks)


@pytest.fixture(scope="module")
def whole(started: list[Training], interrupted: Run) -> Run:
    """Without an interruption."""
    return started[0].finished()


# What NVIDIA's script is called with; it must not change how a CPU trains.
NVIDIA = ["--dali_cpu", "--loss-scale", "128.0", "--opt-level", "O2"]


@pytest.fixture(scope="module")
def resuming(images: Path, interrupted: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Training]:
    """Copies of what the killed run left behind, gone on from by so many processes, side by side."""
    under_way = {}
    for processes in (2, 3):
        folder = tmp_path_factory.mktemp("resumed") / "run"
        shutil.copytree(interrupted.folder, folder)
        under_way[processes] = Training(images, folder, processes, "--resume", str(folder), *NVIDIA)
    return under_way


def test_a_run_trains_validates_and_writes_checkpoints(whole):
    assert whole.status == 0, whole.output
    line = r"Epoch: \[1\]\[12/12\]  Time +[\d.]+  Data +[\d.]+ \( *\d+%\)  Speed +[\d.]+  Loss +[\d.]+  Acc@1 +[\d.]+"
    assert re.search(line, whole.output), whole.output
    assert len(re.findall(r"^ \* Acc@1 [\d.]+ Acc@5 100.000", whole.output, re.M)) == 2
    assert "epoch 1: 48 samples expected, each seen once, 0 skipped" in whole.output
    checkpoint = whole.checkpoint
    assert (checkpoint["epoch"], checkpoint["position"]) == (2, None)
    assert checkpoint["classes"] == ["astronaut", "chelsea", "coffee", "rocket"]
    assert (whole.folder / "model_best.pth.tar").is_file()


def test_validation_scores_equal_those_of_one_process_and_torchvisions_image_folder(whole, images, tmp_path):
    checkpoint = whole.checkpoint
    model = build_model("resnet10", 4, pretrained=False, member=None).eval()
    model.load_state_dict(checkpoint["model"])
    to_float = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)])
    transform = v2.Compose([v2.ToImage(), image_transform("val", 64), to_float])
    ((pixels, labels),) = DataLoader(ImageFolder(images / "val", transform), batch_size=11)
    with torch.no_grad():
        output = model(pixels)
    top1 = 100 * (output.argmax(1) == labels).double().mean().item()
    loss = torch.nn.functional.cross_entropy(output, labels).item()
    last = re.findall(r"Acc@1 ([\d.]+) Acc@5 [\d.]+ Loss ([\d.]+) \(11 images\)", whole.output)[-1]
    assert [float(number) for number in last] == pytest.approx([top1, loss], abs=1e-3)


def test_a_stop_is_agreed_on_and_torchrun_goes_on_where_it_was(interrupted):
    stopped, _, restarted = interrupted.output.partition("Stopped as asked")
    assert restarted, interrupted.output
    resumed = re.search(r"Resumed from .*: epoch 0, (\d+) of 48 images done", restarted)
    steps = int(re.findall(r"Epoch: \[0\]\[ *(\d+)/12\]", stopped)[-1])
    assert int(resumed[1]) == 4 * steps < 48
    first = re.search(r"Epoch: \[0\]\[ *(\d+)/12\]", restarted)
    assert int(first[1]) == steps + 1
    assert "epoch 0: 48 samples expected, each seen once, 0 skipped" in restarted


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_a_killed_run_resumes_with_any_number_of_processes_and_each_sample_is_seen_once(
    processes, interrupted, resuming, alone, whole, images, tmp_path, capsys
):
    place = interrupted.checkpoint["position"]["place"]
    assert interrupted.checkpoint["epoch"] == 1 and place in (12, 24, 36)
    if processes == 1:
        folder = shutil.copytree(interrupted.folder, tmp_path / "run")
        alone(images, "--resume", str(folder), *NVIDIA)
        resumed = Run(folder, capsys.readouterr().out, 0)
    else:
        resumed = resuming[processes].finished()
    assert resumed.status == 0, resumed.output
    assert f"epoch 1, {place} of 48 images done" in resumed.output
    assert "epoch 1: 48 samples expected, each seen once, 0 skipped, " in resumed.output
    assert resumed.output.count("] was done before") == 0
    assert "(11 images)" in resumed.output
    if processes == 2:
        expected = whole.checkpoint
        for name, weights in resumed.checkpoint["model"].items():
            assert torch.equal(weights, expected["model"][name]), name
        assert re.findall(r" \* .*", resumed.output) == re.findall(r" \* .*", whole.output)[1:]


SEED_LINES = [
    "-a resnet50 --dali_cpu --b 128 --loss-scale 128.0 --workers 4 --lr=0.4 --opt-level O2 TRAIN VAL",
    "TRAIN VAL -a resnet50 --dali_cpu --b 128 --loss-scale 128.0 --workers 4 --lr=0.4 --opt-level O2",
    "-a resnet50 --dali_cpu TRAIN --b 128 --loss-scale 128.0 VAL --workers 4 --lr=0.4 --opt-level O2",
]


@pytest.mark.parametrize("recipe", [distrib_train_from_file, distrib_train_from_s3])
@pytest.mark.parametrize("line", SEED_LINES)
def test_the_usual_command_lines_parse(recipe, line):
    args = recipe.parse(shlex.split(line))
    assert args.splits == {"train": "TRAIN", "val": "VAL"}
    assert (args.arch, args.batch_size, args.lr, args.workers) == ("resnet50", 128, 0.4, 4)
    assert (args.loss_scale, args.opt_level, args.dali_cpu) == (128.0, "O2", True)


def test_the_options_of_pytorchs_example_parse():
    line = "DATA/ -a resnet18 -j 8 --epochs 3 --start-epoch 1 -b 32 --lr 0.2 --momentum 0.8 --wd 1e-5 -p 5 "
    line += "--resume runs -e --pretrained --seed 7 --channels-last True --sync_bn --label-smoothing 0.1 --amp --prof 9"
    args = distrib_train_from_file.parse(line.split())
    assert args.splits == {"train": "DATA/train", "val": "DATA/val"}
    assert (args.weight_decay, args.seed, args.channels_last, args.prof) == (1e-5, 7, True, 9)


@pytest.mark.parametrize("line", ["", "A B C", "DATA --workers -1", "DATA --b 0"])
def test_a_command_line_that_cannot_be_meant_is_refused(line, capsys):
    with pytest.raises(SystemExit):
        distrib_train_from_file.parse(line.split())
    assert "error: " in capsys.readouterr().err


def test_the_learning_rate_warms_up_and_decays_by_what_was_seen():
    assert learning_rate(2.5, epochs=90, base=1.0) == 0.5
    assert learning_rate(5, epochs=90, base=1.0) == 1.0
    assert learning_rate(90, epochs=90, base=1.0) == pytest.approx(0)
    assert learning_rate(60, epochs=90, base=1.0, schedule="step") == pytest.approx(0.01)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Train in this process, without torchrun."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)

    def train(images: Path, *options: str) -> None:
        folder = ["--output-dir", str(tmp_path / "run")]
        distrib_train_from_file.main([str(images), *OPTIONS.format(workers=0).split(), *folder, *options])

    return train


def test_a_class_that_only_validation_has_is_found_before_training(alone, images, tmp_path):
    shutil.copytree(images, tmp_path / "images")
    (tmp_path / "images/val/rocket").rename(tmp_path / "images/val/rokcet")
    with pytest.raises(ValueError, match="val has the class 'rokcet'"):
        alone(tmp_path / "images")


def test_numbers_as_directories_are_the_labels(alone, tmp_path):
    write_sample_images(tmp_path / "images", classes=11, images=22, val_images=11, size=(64, 64), labels="numbers")
    alone(tmp_path / "images", "--epochs", "1", "-b", "11")
    assert load_checkpoint(tmp_path / "run")["classes"] == [str(number) for number in range(11)]


def test_resuming_as_another_model_is_refused(alone, images, whole):
    with pytest.raises(ValueError, match="the checkpoint is of resnet10 for 4 classes"):
        alone(images, "-a", "resnet18", "--resume", str(whole.folder))


def test_resuming_from_nothing_is_refused(alone, images, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        alone(images, "--resume", str(tmp_path))


def test_a_checkpoint_that_would_run_code_is_refused(alone, images, tmp_path):
    torch.save({"position": Path("x")}, tmp_path / "checkpoint.pth.tar")
    with pytest.raises(Exception, match="Weights only"):
        alone(images, "--resume", str(tmp_path))


def test_resuming_from_ones_own_empty_folder_starts_anew_and_from_another_is_an_error(tmp_path):
    assert checkpoint_to_resume(tmp_path, str(tmp_path)) is None
    elsewhere = checkpoint_to_resume(tmp_path, str(tmp_path / "mistyped"))
    with pytest.raises(FileNotFoundError, match="mistyped"):
        load_checkpoint(elsewhere)
