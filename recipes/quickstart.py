"""A first look, in about a minute: photographs into a real S3 server, and two processes that train from it.

    make quickstart                                 # or
    python recipes/quickstart.py --epochs 10

One of the two processes is killed on purpose in mid-epoch. torchrun starts them again, they go on at the next image
that was not seen, and the epoch's account proves that every image was seen exactly once.

Nothing is left behind but a few downloads in ~/.cache/remote-datapipes.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from recipes.local_process import temporary_folder
from recipes.local_s3 import put_folder, s3_server
from recipes.sample_images import write_sample_images

CLASSES, IMAGES, VAL_IMAGES = 10, 400, 100
PROCESSES = 2
KILLED_EPOCH = 2
OPTIONS = "-a resnet10 --image-size 64 -b 20 --workers 1 --print-freq 5 --checkpoint-freq 2"
SCRIPT = "recipes/distrib_train_from_s3.py"
REPOSITORY = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6, help="at least 4 (default: %(default)s)")
    args = parser.parse_args(argv)
    if args.epochs < KILLED_EPOCH + 2:
        parser.error(f"--epochs must be at least {KILLED_EPOCH + 2}, got {args.epochs}")
    began = time.monotonic()
    folder = temporary_folder("quickstart")
    print("From an S3 bucket to a distributed training run, on this machine. It takes about a minute.\n", flush=True)

    with step(f"1. {IMAGES} photographs to train and {VAL_IMAGES} to validate, of {CLASSES} classes"):
        images = write_sample_images(folder / "images", classes=CLASSES, images=IMAGES, val_images=VAL_IMAGES)
    print("2. A real S3 server of this machine (S3Proxy; the first time, it is downloaded: 50 MB)", flush=True)
    with s3_server() as server:
        with step(f"   at {server.endpoint_url}, with the photographs in the bucket 'imagenet'"):
            put_folder(server, images, bucket="imagenet")
        output = trained(folder, args.epochs, server.environment)
    print_result(output, args.epochs, time.monotonic() - began)
    shutil.rmtree(folder)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is being done, and then how long it took."""
    began = time.monotonic()
    print(f"{what} ...", end="", flush=True)
    yield
    print(f" {time.monotonic() - began:.1f} s", flush=True)


def trained(folder: Path, epochs: int, environment: dict[str, str]) -> list[str]:
    """Train as a user would, kill a process in mid-epoch; the lines that rank 0 printed."""
    command = [SCRIPT, "s3://imagenet", *shlex.split(OPTIONS), "--epochs", str(epochs)]
    print(f"3. {PROCESSES} processes train a small ResNet straight from the bucket:\n")
    print(f"   torchrun --standalone --nproc_per_node={PROCESSES} --max-restarts=1 {' '.join(command)}\n", flush=True)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={PROCESSES}"]
    log_path = folder / "training.log"
    lines: list[str] = []
    killed = False
    # The settings of whoever runs this must not decide which bucket it reads.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with open(log_path, "w") as log:
        process = subprocess.Popen(
            [*launcher, "--max-restarts=1", *command, "--output-dir", str(folder / "run")],
            cwd=REPOSITORY,
            env=inherited | environment | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            for line in process.stdout or ():
                log.write(line)
                log.flush()
                lines.append(line.rstrip())
                print(f"   {lines[-1]}", flush=True)
                if line.startswith(f"Epoch: [{KILLED_EPOCH}][ 5/") and not killed:
                    killed = True
                    rank_1(process.pid).kill()
                    print(
                        "\n4. That was a kill -9 of one process, in mid-epoch. torchrun starts both again:\n",
                        flush=True,
                    )
            status = process.wait()
        finally:
            process.terminate()
    if status or not any(line.startswith("Resumed from") for line in lines):
        sys.exit(f"\nquickstart: training ended with status {status}; its log is {log_path}")
    return lines


def rank_1(launcher_pid: int) -> psutil.Process:
    processes = psutil.Process(launcher_pid).children()
    return next(process for process in processes if process.environ().get("RANK") == "1")


def print_result(lines: list[str], epochs: int, seconds: float) -> None:
    """The last lines: what was trained, how well, how fast, and the proof of the epoch that was interrupted."""
    output = "\n".join(lines)
    top1 = float(re.findall(r"^ \* Acc@1 ([\d.]+)", output, re.MULTILINE)[-1])
    speed, waiting = re.findall(r"([\d.]+) images/s, (\d+%) of the time", output)[-1]
    proof = next(line for line in lines if line.startswith(f"epoch {KILLED_EPOCH}: "))
    print(f"""
Done in {seconds:.0f} s, and all of it is stopped and removed again.

   trained   resnet10, {epochs} epochs of {IMAGES} photographs, from s3://imagenet, by {PROCESSES} processes
   accuracy  {top1:.0f}% of {VAL_IMAGES} validation photographs right; guessing would give {100 // CLASSES}%
   speed     {speed} images/s, {waiting} of the time waiting for data
   proof     {proof}
             (epoch {KILLED_EPOCH} is the one in which a process was killed)

Next: README.md, and docs/training.md to train on your own bucket.""")


if __name__ == "__main__":
    main()
