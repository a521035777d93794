#!/usr/bin/env python3
"""Read a data set in a tight loop, without decoding, and say how fast that is.

    python3 loop_read.py --data-table imagenette.data_train --rows-fn train.rows
    python3 loop_read.py --data-table imagenette.data_train --rows-fn train.rows --use-gpu
    torchrun --nproc_per_node=2 loop_read.py --data-table imagenette.data_train --rows-fn train.rows
    python3 loop_read.py --reader=file --file-root=/tmp/imagenette2-320/train
    python3 loop_read.py --reader=s3 --file-root=s3://bucket/imagenette2-320/train/
    python3 loop_read.py --reader=tar --file-root=/data/shards

Under torchrun each process reads its share, and the figures are totals. The first epoch warms up; mean and
standard deviation are over the others.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from tqdm import tqdm

from datapipes.dataset.as_dataset import as_dataset
from datapipes.iter import IterableWrapper
from recipes.cassandra_options import add_server_options, server_from
from recipes.say_why import say_why


def main(argv: list[str] | None = None) -> None:
    args = parse_options(argv)
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world_size > 1:
        dist.init_process_group("gloo")
    dataset = as_dataset(build_pipe(args))
    loader = DataLoader(dataset, batch_size=None, num_workers=args.workers, persistent_workers=args.workers > 0)
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if args.use_gpu else None
    speeds = []
    for epoch in range(args.epochs):
        dataset.set_epoch(epoch)
        images, size, seconds = read_epoch(loader, device, f"epoch {epoch}", args.bs, show=rank == 0)
        images, size, seconds = totals(images, size, seconds)
        speeds.append((images / seconds, size / seconds / 1e6))
        if rank == 0:
            print(f"epoch {epoch}: {images:,.0f} images, {speeds[-1][0]:,.0f} images/s, {speeds[-1][1]:,.1f} MB/s")
    if rank == 0:
        print(summary(speeds))
    if world_size > 1:
        dist.destroy_process_group()


def build_pipe(args: argparse.Namespace) -> Any:
    """The chain that reads: keys, everybody's share of them, their bytes, batches."""
    if args.reader == "cassandra":
        keys = IterableWrapper([args.rows_fn]).list_rows_by_file().distribute(uneven="keep")
        samples = keys.read_cassandra(server=server_from(args), table=args.data_table)
    elif args.reader == "s3":
        samples = IterableWrapper([args.file_root]).list_files_by_s3().distribute(uneven="keep").load_files_by_s3()
    elif args.reader == "tar":
        keys = IterableWrapper([args.file_root]).list_tar_samples().distribute(uneven="keep", block=256)
        samples = keys.read_tar_samples()
    else:
        keys = IterableWrapper([args.file_root]).list_files_by_fsspec().distribute(uneven="keep")
        samples = keys.load_files_by_fsspec()
    return samples.batched(args.bs, collate=None)


def read_epoch(
    loader: DataLoader[Any], device: torch.device | None, name: str, batch_size: int, *, show: bool
) -> tuple[int, int, float]:
    """Images and bytes of one epoch, and the seconds that it took."""
    images = size = 0
    start = time.perf_counter()
    with tqdm(total=len(loader), desc=name, unit=" batches", disable=not show) as bar:
        for batch in loader:
            blobs = [bytes_of(sample) for sample in batch]
            if device is not None:
                for blob in blobs:
                    torch.frombuffer(blob, dtype=torch.uint8).to(device, non_blocking=True)
                torch.cuda.synchronize(device)
            images += len(blobs)
            size += sum(map(len, blobs))
            bar.update()
    return images, size, time.perf_counter() - start


def bytes_of(sample: Any) -> bytearray | bytes:
    """The file of a sample, or of the (url, stream) that a loader of files gives."""
    if isinstance(sample, dict):
        return next(value for value in sample.values() if isinstance(value, bytes))
    return sample[1].getvalue()  # type: ignore[no-any-return]


def totals(images: int, size: int, seconds: float) -> tuple[float, float, float]:
    """Images and bytes of all ranks, and the time of the slowest."""
    if not dist.is_initialized():
        return images, size, seconds
    summed = torch.tensor([images, size], dtype=torch.float64)
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(summed)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return summed[0].item(), summed[1].item(), slowest.item()


def summary(speeds: list[tuple[float, float]]) -> str:
    """Mean and deviation over all epochs but the first."""
    measured = speeds[1:] or speeds
    parts = []
    for values, unit in zip(zip(*measured), ["images/s", "MB/s"]):
        parts.append(f"{statistics.mean(values):,.1f} +- {statistics.pstdev(values):,.1f} {unit}")
    return f"average of {len(measured)} epochs: " + ", ".join(parts)


def parse_options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reader", default="cassandra", choices=["cassandra", "file", "s3", "tar"])
    parser.add_argument("--data-table", help="keyspace.table (cassandra; default: what the row file says)")
    parser.add_argument("--rows-fn", help="row file, from cache_uuids.py (cassandra)")
    parser.add_argument("--file-root", help="folder, s3:// URL, or folder of shards (file, s3, tar)")
    parser.add_argument("--use-gpu", action="store_true", help="copy every image to the GPU")
    parser.add_argument("--bs", type=int, default=128, help="images a batch (default: 128)")
    parser.add_argument("--epochs", type=int, default=10, help="(default: 10)")
    parser.add_argument("--workers", type=int, default=0, help="worker processes a rank (default: 0)")
    add_server_options(parser)
    args = parser.parse_args(argv)
    if args.reader == "cassandra" and args.rows_fn is None:
        parser.error("--reader cassandra needs --rows-fn")
    if args.reader != "cassandra" and args.file_root is None:
        parser.error(f"--reader {args.reader} needs --file-root")
    if args.use_gpu and not torch.cuda.is_available():
        parser.error("--use-gpu: torch finds no GPU here; leave it out, or see what nvidia-smi and the driver say")
    return args


if __name__ == "__main__":
    say_why(main)
