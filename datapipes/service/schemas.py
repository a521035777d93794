"""The JSON bodies of the service, as its OpenAPI description shows them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from datapipes.service.names import DATASET_NAME, MAX_PATH_BYTES

PARTS = 10_000


class NewDataset(BaseModel):
    name: str = Field(pattern=f"^{DATASET_NAME}$", examples=["my_dataset"])


class Dataset(BaseModel):
    name: str
    location: str = Field(examples=["/dataset/my_dataset"])


class Datasets(BaseModel):
    datasets: list[Dataset]


class File(BaseModel):
    path: str = Field(examples=["train/n01440764/n01440764_10026.JPEG"])
    size: int = Field(description="bytes")
    modified: str = Field(description="ISO 8601, UTC, to the microsecond")
    etag: str
    sha256: str | None = Field(description="hex; null where the store does not keep it")


class Files(BaseModel):
    files: list[File]
    next: str | None = Field(description="`after` of the next page; null on the last")


class Unpacked(BaseModel):
    files: int
    bytes: int


class Summary(BaseModel):
    files: int
    bytes: int
    classes: int = Field(description="distinct names of folders that hold files")
    folders: dict[str, int] = Field(description="files that lie directly in each folder")


class NewUpload(BaseModel):
    path: str = Field(min_length=1, max_length=MAX_PATH_BYTES)
    size: int = Field(ge=0, le=1 << 60, description="bytes of the whole file")


class Part(BaseModel):
    number: int
    size: int
    sha256: str | None = None


class Upload(BaseModel):
    id: str
    path: str
    size: int
    parts: list[Part]


class Uploads(BaseModel):
    uploads: list[Upload]


BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
}
