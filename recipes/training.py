"""The training loop that every distrib_train_from_*.py shares. `train(args, build_pipe)` runs it.

One file to read top to bottom: what is trained, an epoch, and where it goes on after an interruption. A recipe
gives `build_pipe(args, split, classes)`, the chain of pipes from its store to batches.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from datapipes.catalog.class_map import ClassMap
from datapipes.dataset import as_dataset
from datapipes.dataset.randomness import mixed
from recipes.checkpoint import checkpoint_to_resume, job_name, load_checkpoint, save_checkpoint
from recipes.class_names import check_classes, classes_of
from recipes.learning_rate import learning_rate
from recipes.loader import loader_of, start_fork_server
from recipes.model import build_model
from recipes.process_group import Member, StopRequest, from_rank_0, joined_processes
from recipes.progress import Progress, counts_of
from recipes.transforms import ToDevice
from recipes.validation import Scores, validate

BuildPipe = Callable[[argparse.Namespace, str, ClassMap | None], Any]
CountClasses = Callable[[argparse.Namespace], int]


def train(args: argparse.Namespace, build_pipe: BuildPipe, count_classes: CountClasses = lambda _args: 0) -> None:
    """Train as `args` say (see training_options.py) on the batches of `build_pipe(args, "train" or "val", classes)`.

    Batches are `(images, labels)`: uint8 (batch, 3, H, W) and int64 (batch,). `classes` is None where the listing of
    the training set decides. Where the keys are in no directories, one process asks `count_classes(args)`.
    """
    if args.workers:
        start_fork_server()
    with joined_processes(on_cpu=args.no_accel) as member:
        Training(args, build_pipe, count_classes, member).run()


class Training:
    """One run, or its continuation from a checkpoint."""

    def __init__(
        self, args: argparse.Namespace, build_pipe: BuildPipe, count_classes: CountClasses, member: Member
    ) -> None:
        self.args, self.member = args, member
        self.output_dir = Path(args.output_dir)
        # Decided by one process, for file systems show a new file to some machines later than to others.
        path = from_rank_0(checkpoint_to_resume(self.output_dir, args.resume) if member.rank == 0 else None)
        saved = load_checkpoint(path) if path else None
        self.epoch = saved["epoch"] if saved else args.start_epoch
        self.best_top1 = saved["best_top1"] if saved else 0.0

        classes = ClassMap(saved["classes"], source=str(path)) if saved and saved["classes"] else None
        self.train_set = as_dataset(build_pipe(args, "train", classes))
        classes = classes or classes_of(self.train_set)
        self.val_set = as_dataset(build_pipe(args, "val", classes))
        if classes is not None:
            check_classes(self.train_set, classes, "train")
            check_classes(self.val_set, classes, "val")
        self.classes = classes
        self.num_classes = args.classes or (saved["num_classes"] if saved else None) or len(classes or ())
        if not self.num_classes:
            # Rank 0 alone: it may mean to read a table's every label.
            self.num_classes = from_rank_0(count_classes(args) if member.rank == 0 else None)
        if not self.num_classes:
            raise ValueError("training: neither directories nor records tell the classes; say --classes N")

        self._set_up_model(saved)
        self.start = 0
        if saved and saved["position"]:
            self.train_set.load_state_dict(saved["position"])
            self.start = saved["position"]["place"]
        self._say_what_is_trained(path)

    def _set_up_model(self, saved: dict[str, Any] | None) -> None:
        args, device = self.args, self.member.device
        on_gpu = device.type == "cuda"
        torch.backends.cudnn.benchmark = not args.deterministic
        torch.use_deterministic_algorithms(args.deterministic)
        torch.manual_seed(args.seed)
        model = build_model(args.arch, self.num_classes, pretrained=args.pretrained and not saved, member=self.member)
        if args.sync_bn:
            if not on_gpu:
                raise ValueError("training: --sync_bn needs GPUs; leave it out on CPUs")
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        self.model = model.to(device)
        if args.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.loss = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=args.lr, momentum=args.momentum, weight_decay=args.weight_decay
        )
        # On CPUs float32 stays: bfloat16 is slower on most of them.
        mixed = on_gpu and (args.amp or args.opt_level != "O0")
        half = args.opt_level != "O0" or not (on_gpu and torch.cuda.is_bf16_supported())
        self.autocast = torch.autocast(device.type, torch.float16 if half else torch.bfloat16, enabled=mixed)
        self.scaler = torch.amp.GradScaler(
            device.type,
            init_scale=args.loss_scale or 2.0**16,
            growth_interval=2**31 - 1 if args.loss_scale else 2000,
            enabled=mixed and half,
        )
        if saved:
            if saved["arch"] != args.arch or saved["num_classes"] != self.num_classes:
                raise ValueError(
                    f"--resume: the checkpoint is of {saved['arch']} for {saved['num_classes']} classes, this run of "
                    f"{args.arch} for {self.num_classes}; say --arch {saved['arch']} --classes {saved['num_classes']}"
                )
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            if saved["scaler"] and self.scaler.is_enabled():
                self.scaler.load_state_dict(saved["scaler"])
        self.parallel: nn.Module = self.model
        if self.member.world_size > 1:
            self.parallel = DistributedDataParallel(self.model, device_ids=[device] if on_gpu else None)
        self.to_device = ToDevice(device, args.channels_last)

    def run(self) -> None:
        """Epochs until the last, each followed by validation and a checkpoint."""
        args, on_gpu = self.args, self.member.device.type == "cuda"
        val_loader = loader_of(self.val_set, num_workers=args.workers, pin_memory=on_gpu, persistent=False)
        if args.evaluate:
            self.member.say(str(self.validated(val_loader)))
            return
        loader = loader_of(self.train_set, num_workers=args.workers, pin_memory=on_gpu)
        stop = StopRequest()
        try:
            while self.epoch < args.epochs:
                if not self.train_epoch(loader, stop):
                    self.member.say(f"Stopped as asked; go on with --resume {self.output_dir}")
                    sys.exit(stop.exit_status)
                if args.prof > 0:
                    return
                scores = self.validated(val_loader)
                self.member.say(str(scores))
                self.epoch += 1
                is_best, self.best_top1 = scores.top1 > self.best_top1, max(scores.top1, self.best_top1)
                self.save(position=None, is_best=is_best)
        finally:
            stop.close()

    def train_epoch(self, loader: Any, stop: StopRequest) -> bool:
        """One epoch, or what was left of it when it was interrupted. False when asked to stop."""
        args, member, dataset = self.args, self.member, self.train_set
        dataset.set_epoch(self.epoch)
        start, self.start = self.start, 0
        steps = len(dataset)
        global_batch = args.batch_size * member.world_size
        done_before = start // global_batch
        progress = Progress(member, self.epoch, done_before + steps)
        profile = torch.profiler.profile() if args.prof > 0 else None
        waiting_since = time.monotonic()
        batches = iter(loader)
        for step in range(1, steps + 1):
            batch = next(batches)
            progress.waited(time.monotonic() - waiting_since)
            if profile and step == 1:
                profile.start()
            progress.add(self.train_step(batch, place=start + (step - 1) * global_batch))
            if step % args.print_freq == 0 or step == steps:
                progress.line(done_before + step)
            if profile and step == min(args.prof, steps):
                profile.stop()
                member.say(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=20))
                return True
            stopping = stop.agreed()
            if stopping or step % args.checkpoint_freq == 0 or step == steps:
                self.save(position=dataset.position(step))
            if stopping:
                return False
            waiting_since = time.monotonic()
        if next(batches, None) is not None:
            raise RuntimeError(f"training: the loader gave more than the {steps} batches that it promised")
        report = dataset.report()
        member.say(f"{progress.summary()}\n{report}")
        if not report.proven:
            raise RuntimeError(f"training: this epoch's account is wrong: {report}")
        return not stop.agreed_now()

    def train_step(self, batch: tuple[Tensor, Tensor], place: int) -> Tensor:
        """Learn from one batch, the `place`-th samples of the epoch. Returns `counts_of` it."""
        args, member = self.args, self.member
        rate = learning_rate(
            self.epoch + place / len(self.train_set.table),
            epochs=args.epochs,
            base=args.lr * args.batch_size * member.world_size / 256,
            warmup_epochs=args.warmup_epochs,
            schedule=args.lr_schedule,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        # Dropout and the like: the same after a resume as without an interruption.
        torch.manual_seed(mixed(args.seed, self.epoch, place, member.rank) >> 1)
        images, labels = self.to_device(*batch)
        with self.autocast:
            output = self.parallel(images)
            loss = self.loss(output, labels)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return counts_of(output, labels, loss)

    def validated(self, loader: Any) -> Scores:
        return validate(self.model, self.val_set, loader, self.member, self.to_device, self.autocast)

    def save(self, *, position: dict[str, Any] | None, is_best: bool = False) -> None:
        """Write a checkpoint: at `position` of this epoch, or at the beginning of it."""
        if self.member.rank != 0:
            return
        state = {
            "arch": self.args.arch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "classes": list(self.classes) if self.classes else None,
            "num_classes": self.num_classes,
            "epoch": self.epoch,
            "position": position,
            "best_top1": self.best_top1,
            "job": job_name(),
        }
        save_checkpoint(self.output_dir, state, is_best=is_best)

    def _say_what_is_trained(self, path: Path | None) -> None:
        args, member = self.args, self.member
        kind = "GPU" if member.device.type == "cuda" else "CPU"
        n = len(self.train_set.table)
        member.say(
            f"{args.arch} on {member.world_size} x {kind}, --workers {args.workers}: {n:,} images of "
            f"{self.num_classes} classes to train and {len(self.val_set.table):,} to validate, "
            f"global batch {args.batch_size * member.world_size}"
        )
        if path:
            member.say(f"Resumed from {path}: epoch {self.epoch}, {self.start:,} of {n:,} images done")
