"""What a script says of a mistake: the reason, and no stack trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.local_process import free_port

RECIPES = Path(__file__).parent.parent / "recipes"


@pytest.mark.parametrize(
    ("script", "options", "said"),
    [
        ("imagenet_sharding.py", "-d /no/such/archive.tar -o {folder}/shards", "/no/such/archive.tar"),
        ("imagenette/create_split.py", "--metadata-ifn /no/such/cache -o {folder}/split.pckl", "/no/such/cache"),
        ("imagenette/create_split.py", "-k imagenette -s train -o {folder}/split.pckl", "is out of reach"),
        ("imagenette/loop_read.py", "--reader=file --file-root=/no/such/folder", "/no/such/folder"),
    ],
)
def test_a_mistake_is_answered_with_its_reason_alone(script, options, said, tmp_path):
    ended = subprocess.run(
        [sys.executable, RECIPES / script, *options.format(folder=tmp_path).split()],
        env=os.environ | {"CASSANDRA_HOSTS": "127.0.0.1", "CASSANDRA_PORT": str(free_port())},
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 1 and said in ended.stderr
    assert "Traceback" not in ended.stderr
