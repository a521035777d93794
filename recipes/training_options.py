"""The command line of every training recipe: pytorch/examples' imagenet options and those of NVIDIA's DALI ResNet-50.

Defaults are those of the usual ImageNet recipe: SGD, learning rate 0.1 for a global batch of 256, cosine decay.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


def training_parser(manual: str | None) -> argparse.ArgumentParser:
    """A parser with every option of training; a recipe adds where its data is. `manual` is its docstring."""
    parser = argparse.ArgumentParser(description=manual, formatter_class=argparse.RawDescriptionHelpFormatter)
    _add_model_options(parser.add_argument_group("model"))
    _add_optimizer_options(parser.add_argument_group("optimization"))
    _add_input_options(parser.add_argument_group("input"))
    _add_speed_options(parser.add_argument_group("precision and speed"))
    _add_run_options(parser.add_argument_group("the run and its checkpoints"))
    return parser


def parse_training_options(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse, with folders before, between or behind the options, and refuse what cannot be meant."""
    args = parser.parse_intermixed_args(argv)
    for name in ("batch_size", "epochs", "image_size", "print_freq", "checkpoint_freq"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    if args.workers < 0:
        parser.error(f"--workers must be at least 0, got {args.workers}")
    return args


def _add_model_options(group: Any) -> None:
    group.add_argument("-a", "--arch", default="resnet50", help="a torchvision model, or resnet10 (default: resnet50)")
    group.add_argument("--pretrained", action="store_true", help="begin with torchvision's weights; downloads them")
    group.add_argument("--classes", type=int, metavar="N", help="outputs of the model (default: the classes in train)")
    group.add_argument("--image-size", type=int, default=224, metavar="PIXELS", help="of a crop (default: 224)")
    group.add_argument("--sync_bn", "--sync-bn", action="store_true", help="batch statistics over all GPUs")


def _add_optimizer_options(group: Any) -> None:
    group.add_argument("--epochs", type=int, default=90, help="(default: 90)")
    group.add_argument("--start-epoch", type=int, default=0, metavar="E", help="first epoch of a new run (default: 0)")
    # --b is spelt out: as a mere abbreviation of --batch-size it would break with the next option in b.
    group.add_argument(
        "-b", "--b", "--batch-size", dest="batch_size", type=int, default=128, help="of each process (default: 128)"
    )
    group.add_argument(
        "--lr",
        "--learning-rate",
        type=float,
        default=0.1,
        help="for a global batch of 256; scaled by batch size x processes / 256 (default: 0.1)",
    )
    group.add_argument(
        "--lr-schedule", choices=["cosine", "step"], default="cosine", help="step: a tenth each 30 epochs"
    )
    group.add_argument(
        "--warmup-epochs", type=float, metavar="E", help="of rising learning rate (default: 5, at most a tenth of all)"
    )
    group.add_argument("--momentum", type=float, default=0.9, help="(default: 0.9)")
    group.add_argument("--wd", "--weight-decay", dest="weight_decay", type=float, default=1e-4, help="(default: 1e-4)")
    group.add_argument("--label-smoothing", type=float, default=0.0, help="(default: 0)")


def _add_input_options(group: Any) -> None:
    group.add_argument(
        "-j", "--workers", type=int, default=4, help="processes that load and decode, for each GPU (default: 4)"
    )
    group.add_argument("--seed", type=int, default=0, help="of order, augmentation and weights (default: 0)")
    group.add_argument(
        "--on-error", choices=["raise", "skip"], default="raise", help="skip: count unreadable images and go on"
    )
    group.add_argument("--dali_cpu", "--dali-cpu", action="store_true", help="taken and always so: CPUs decode")


def _add_speed_options(group: Any) -> None:
    group.add_argument("--amp", action="store_true", help="mixed precision on GPUs: bfloat16, or float16 on older ones")
    group.add_argument(
        "--opt-level", choices=["O0", "O1", "O2", "O3"], default="O0", help="apex's: O1 and more are float16 --amp"
    )
    group.add_argument(
        "--loss-scale", type=_loss_scale, metavar="SCALE", help="of float16: a fixed number (default: dynamic)"
    )
    group.add_argument("--channels-last", type=_flag, nargs="?", const=True, default=False, help="memory layout NHWC")
    group.add_argument("--deterministic", action="store_true", help="the same bits every time, also on GPUs; slower")
    group.add_argument("--no-accel", action="store_true", help="train on the CPU though there are GPUs")
    group.add_argument("--prof", type=int, default=-1, metavar="STEPS", help="profile so many steps, print it and stop")


def _add_run_options(group: Any) -> None:
    group.add_argument("-p", "--print-freq", type=int, default=10, metavar="STEPS", help="between lines (default: 10)")
    group.add_argument("--output-dir", default="runs", metavar="FOLDER", help="of the checkpoints (default: runs)")
    group.add_argument(
        "--checkpoint-freq", type=int, default=1000, metavar="STEPS", help="besides each epoch's end (default: 1000)"
    )
    group.add_argument(
        "--resume",
        metavar="PATH",
        help="a checkpoint or an --output-dir, which may be this run's own: go on where it was written",
    )
    group.add_argument("-e", "--evaluate", action="store_true", help="only validate")


def _loss_scale(text: str) -> float | None:
    return None if text == "dynamic" else float(text)


def _flag(text: str) -> bool:
    # NVIDIA's script takes `--channels-last True`, which most users copy with it.
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"expected True or False, got {text!r}")
    return text.lower() in ("true", "1")
