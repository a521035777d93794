import io
import pickle
import warnings

import numpy as np
import pytest
import simplejpeg
import skimage.data
import torch
import webdataset
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from torch.utils.data.datapipes.iter import IterableWrapper

from datapipes.stages.decode import IMAGE_KINDS, ImageDecoder

PICTURES = {name: getattr(skimage.data, name)() for name in ("astronaut", "coffee", "chelsea", "rocket")}
PICTURE = Image.fromarray(PICTURES["astronaut"][:101, :203])


def encode(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def with_alpha(image):
    image.putalpha(PICTURE.convert("L"))
    return image


def rotated_by_exif():
    exif = Image.Exif()
    exif[274] = 6
    return encode(PICTURE, "JPEG", exif=exif)


def ycck():
    pixels = np.ascontiguousarray(np.array(PICTURE.convert("CMYK")))
    data = simplejpeg.encode_jpeg(pixels, colorspace="CMYK", colorsubsampling="420")
    assert simplejpeg.decode_jpeg_header(data)[2] == "YCCK"
    return data


PALETTE = PICTURE.quantize(64)
DEEP = Image.fromarray(PICTURES["astronaut"][:101, :203, 0].astype(np.uint16) * 257)
FILES = {
    "plain JPEG": encode(PICTURE, "JPEG"),
    "progressive JPEG": encode(PICTURE, "JPEG", progressive=True),
    "grey JPEG": encode(PICTURE.convert("L"), "JPEG"),
    "RGB JPEG": encode(PICTURE, "JPEG", keep_rgb=True),
    "CMYK JPEG": encode(PICTURE.convert("CMYK"), "JPEG"),
    "YCCK JPEG": ycck(),
    "JPEG with restart markers": encode(PICTURE, "JPEG", restart_marker_blocks=3),
    "JPEG followed by junk": encode(PICTURE, "JPEG") + b"junk",
    "JPEG rotated by EXIF": rotated_by_exif(),
    "PNG": encode(PICTURE, "PNG"),
    "RGBA PNG": encode(with_alpha(PICTURE.convert("RGBA")), "PNG"),
    "LA PNG": encode(with_alpha(PICTURE.convert("LA")), "PNG"),
    "palette PNG": encode(PALETTE, "PNG"),
    "palette PNG, one color transparent": encode(PALETTE, "PNG", transparency=3),
    "palette PNG, transparent by degrees": encode(PALETTE, "PNG", transparency=bytes(range(64))),
    "16-bit PNG": encode(DEEP, "PNG"),
    "1-bit PNG": encode(PICTURE.convert("1"), "PNG"),
    "WebP": encode(PICTURE, "WEBP"),
    "RGBA WebP": encode(with_alpha(PICTURE.convert("RGBA")), "WEBP", lossless=True),
    "GIF": encode(PICTURE, "GIF"),
    "TIFF": encode(PICTURE, "TIFF"),
    "BMP": encode(PICTURE, "BMP"),
    "PPM": encode(PICTURE, "PPM"),
}


def pillow(data, mode="RGB"):
    """What torchvision's ImageFolder gives, in another mode where asked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Image.open(io.BytesIO(data)).convert(mode)


def decoded(data, kind="rgb", field="jpg", **options):
    (sample,) = IterableWrapper([{"__key__": "cat/1", field: data}]).decode(kind, **options)
    return sample[field]


def test_rgb_is_what_torchvision_loads(tmp_path):
    from torchvision.datasets.folder import pil_loader

    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = np.asarray(pil_loader(tmp_path / name))
        assert np.array_equal(decoded(data), expected), name


@pytest.mark.parametrize("name", FILES)
def test_every_kind_has_pillows_pixels_whatever_the_file(name):
    data = FILES[name]
    for kind in IMAGE_KINDS:
        mode = "RGBA" if "rgba" in kind else "L" if "l" in kind.removeprefix("pil") else "RGB"
        expected = np.asarray(pillow(data, mode))
        image = decoded(data, kind)
        if kind.startswith("pil"):
            assert isinstance(image, Image.Image) and image.mode == mode
        elif kind.startswith("torch"):
            assert image.dtype == torch.uint8 and image.shape == (len(mode), 101, 203)
            image = image[0].numpy() if mode == "L" else image.permute(1, 2, 0).numpy()
        else:
            assert image.dtype == np.uint8 and image.flags.writeable
        assert np.array_equal(np.asarray(image), expected), kind


@settings(max_examples=150, deadline=None)
@given(
    picture=st.sampled_from(sorted(PICTURES)),
    corner=st.tuples(st.integers(0, 100), st.integers(0, 100)),
    size=st.tuples(st.integers(1, 120), st.integers(1, 120)),
    subsampling=st.sampled_from(["444", "422", "420", "440", "411", "Gray"]),
    quality=st.integers(1, 100),
    progressive=st.booleans(),
)
def test_rgb_and_l_of_any_jpeg_are_pillows_to_the_last_bit(picture, corner, size, subsampling, quality, progressive):
    (top, left), (height, width) = corner, size
    crop = np.ascontiguousarray(PICTURES[picture][top : top + height, left : left + width])
    if subsampling in ("440", "411"):
        data = simplejpeg.encode_jpeg(crop, quality, colorsubsampling=subsampling)
    elif subsampling == "Gray":
        data = encode(Image.fromarray(crop).convert("L"), "JPEG", quality=quality, progressive=progressive)
    else:
        sampling = ":".join(subsampling)
        data = encode(Image.fromarray(crop), "JPEG", quality=quality, progressive=progressive, subsampling=sampling)
    assert np.array_equal(decoded(data), np.asarray(pillow(data)))
    assert np.array_equal(decoded(data, "l"), np.asarray(pillow(data, "L")))


def test_exif_orientation_is_left_alone():
    image = decoded(FILES["JPEG rotated by EXIF"], "pil")
    assert image.size == PICTURE.size
    assert ImageOps.exif_transpose(pillow(FILES["JPEG rotated by EXIF"])).size == PICTURE.size[::-1]


@pytest.mark.parametrize("name", ["plain JPEG", "progressive JPEG", "grey JPEG", "CMYK JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize("kind", ["rgb", "torch", "pil"])
def test_a_file_cut_short_is_an_error_that_names_its_key(name, kind):
    data = FILES[name]
    for cut in (data[: len(data) // 2], data[:-200]):
        with pytest.raises(OSError, match=r"decode: 'cat/1', field 'jpg' of [\d,]+ bytes that begin"):
            decoded(cut, kind)


def test_a_jpeg_without_its_last_marker_is_cut_short_too():
    with pytest.raises(OSError, match="truncated"):
        decoded(FILES["plain JPEG"][:-2])


@pytest.mark.parametrize("data", [b"", b"<html>403 Forbidden</html>", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_image_is_an_error_that_says_so(data):
    with pytest.raises(OSError, match=r"decode: 'cat/1', field 'jpg' of .* replace the file, or pass on_error"):
        decoded(data)


def test_an_image_of_too_many_pixels_is_refused_by_both_decoders(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5000)
    for name in ("plain JPEG", "PNG"):
        with pytest.raises(OSError, match="decompression bomb"):
            decoded(FILES[name])


def test_bad_samples_can_be_skipped_or_replaced_with_threads_and_without():
    samples = [{"__key__": str(i), "jpg": FILES["plain JPEG"] if i % 3 else b"no image"} for i in range(10)]
    for num_threads in (1, 3):
        kept = IterableWrapper(samples).decode(num_threads=num_threads, on_error="skip")
        assert [sample["__key__"] for sample in kept] == ["1", "2", "4", "5", "7", "8"]
        replaced = IterableWrapper(samples).decode(
            num_threads=num_threads, on_error=lambda key, error: {"__key__": f"bad {key}"}
        )
        assert [sample["__key__"] for sample in replaced][::3] == ["bad 0", "bad 3", "bad 6", "bad 9"]
        with pytest.raises(OSError, match="decode: '0'"):
            list(IterableWrapper(samples).decode(num_threads=num_threads))


def test_threads_give_the_same_samples_in_the_same_order():
    samples = [{"__key__": name, "jpg": data} for name, data in FILES.items()] * 3
    for one, two in zip(IterableWrapper(samples).decode(), IterableWrapper(samples).decode(num_threads=2)):
        assert one["__key__"] == two["__key__"] and np.array_equal(one["jpg"], two["jpg"])


def test_every_field_is_told_by_its_last_extension():
    sample = {
        "__key__": "cat/1",
        "__url__": "s3://b/cat/1.png",
        "left.png": FILES["PNG"],
        "JPEG": FILES["plain JPEG"],
        "cls": b" 12\n",
        "boxes.json": b'{"x": [1]}',
        "txt": "käse".encode(),
        "npy": (lambda file: (np.save(file, np.arange(3)), file.getvalue())[1])(io.BytesIO()),
        "bin": b"\x00",
    }
    (result,) = IterableWrapper([sample]).decode()
    assert result["left.png"].shape == result["JPEG"].shape == (101, 203, 3)
    assert result["cls"] == 12 and result["boxes.json"] == {"x": [1]} and result["txt"] == "käse"
    assert result["npy"].tolist() == [0, 1, 2]
    assert [result[same] == sample[same] for same in ("__key__", "__url__", "bin")] == [True] * 3


def test_text_and_numbers_come_out_as_webdataset_has_them():
    for field, data in {
        "cls": b"7",
        "id": b"12",
        "index": b"3",
        "txt": b"a",
        "json": b"[1]",
        "jsn": b"2",
    }.items():
        assert decoded(data, field=field) == webdataset.autodecode.basichandlers(field, data)


def test_what_is_decoded_already_passes_unchanged():
    sample = {"__key__": "cat/1", "jpg": PICTURE, "png": np.zeros(3), "cls": 7}
    (result,) = IterableWrapper([sample], deepcopy=False).decode()
    assert result is not sample and all(result[field] is sample[field] for field in sample)


def test_a_label_that_is_no_number_is_an_error_that_names_its_key():
    with pytest.raises(ValueError, match="decode: 'cat/1', field 'cls' of 3 bytes that begin b'cat'"):
        decoded(b"cat", field="cls")


def test_pairs_from_a_loader_are_told_to_go_through_parse_label():
    with pytest.raises(TypeError, match=r"decode: expected a sample.* got a tuple; put parse_label"):
        list(IterableWrapper([("s3://b/1.jpg", b"")]).decode())


@pytest.mark.parametrize("options", [{"kind": "rgb16"}, {"num_threads": 0}, {"num_threads": True}])
def test_impossible_options_are_refused_at_once(options):
    with pytest.raises(ValueError, match=r"decode: (kind must be one of rgb, rgb8|num_threads must be)"):
        IterableWrapper([]).decode(**options)


def test_the_pipe_pickles_unstarted_half_read_and_finished():
    pipe = ImageDecoder(IterableWrapper([{"cls": b"1"}, {"cls": b"2"}]), num_threads=2)
    stream = iter(pipe)
    for _ in range(3):
        assert [sample["cls"] for sample in pickle.loads(pickle.dumps(pipe))] == [1, 2]
        next(stream, None)
    assert len(pipe) == 2
