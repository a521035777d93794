"""What extract_serial.py and extract_spark.py share: their options, what is left to do, and the check at the end."""

from __future__ import annotations

import argparse
from pathlib import Path

from datapipes.catalog.class_map import ClassMap
from datapipes.prepare.cassandra_ingest import Ingest, verify_counts
from datapipes.prepare.class_folders import ImageFile, classes_in, list_images
from recipes.cassandra_options import add_server_options, server_from


def parse_options(description: str | None, argv: list[str] | None) -> argparse.Namespace:
    """The options of both, and `server`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("src", help="folder of the data set; it holds SPLIT/CLASS/FILE, or CLASS/FILE")
    parser.add_argument("--split-subdir", default="", help="which split, such as train or val")
    parser.add_argument("--data-table", required=True, help="keyspace.table for the images")
    parser.add_argument("--metadata-table", required=True, help="keyspace.table for their classes")
    parser.add_argument(
        "--img-format",
        default="UNCHANGED",
        choices=["UNCHANGED", "JPEG", "PNG", "TIFF"],
        help="UNCHANGED stores the files' own bytes (default); else images are converted to RGB",
    )
    parser.add_argument("--img-size", type=int, help="pixels of the shorter side, where the format changes")
    parser.add_argument("--mask-dir", help="folder with a second file for each image, which becomes its label")
    parser.add_argument("--no-label", action="store_true", help="the data table has no label column")
    parser.add_argument(
        "--classes-fn",
        help="JSON file of class names and labels; made from all splits of SRC where there is none yet "
        "(default: KEYSPACE.classes.json)",
    )
    add_server_options(parser)
    args = parser.parse_args(argv)
    if args.img_size and args.img_format == "UNCHANGED":
        parser.error("--img-size needs --img-format JPEG, PNG or TIFF: UNCHANGED files keep their size")
    if args.img_size is not None and args.img_size < 1:
        parser.error(f"--img-size must be at least 1, got {args.img_size}")
    args.server = server_from(args)
    return args


def ingest_from(args: argparse.Namespace) -> Ingest:
    """What to write; the class map is read, or made and saved, so that every split numbers classes alike."""
    classes_fn = Path(args.classes_fn or f"{args.data_table.partition('.')[0]}.classes.json")
    if classes_fn.exists():
        classes = ClassMap.load(classes_fn)
    else:
        classes = classes_in(args.src, args.split_subdir)
        classes.save(classes_fn)
    print(f"{len(classes)} classes, as {classes_fn} numbers them")
    return Ingest(
        root=str(Path(args.src).resolve()),
        data_table=args.data_table,
        metadata_table=args.metadata_table,
        classes=classes,
        split=args.split_subdir,
        img_format=args.img_format,
        img_size=args.img_size,
        masks="" if args.no_label else args.mask_dir,
    )


def images_of(args: argparse.Namespace, ingest: Ingest) -> list[ImageFile]:
    """Every image of the split; a class without a label is refused before anything is written."""
    images = list(list_images(args.src, args.split_subdir))
    for name in {image.class_name for image in images}:
        ingest.classes[name]
    return images


def report(images: list[ImageFile], written: int, ingest: Ingest, args: argparse.Namespace) -> None:
    """Count what the metadata table has now, class by class, and say so."""
    counts = verify_counts(images, ingest, args.server)
    print(
        f"{ingest.data_table}: {written:,} images written, {len(images) - written:,} were there before; "
        f"{sum(counts.values()):,} counted in {len(counts)} classes"
    )
