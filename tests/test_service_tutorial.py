"""The tutorial's commands run as they stand, in their order; of its addresses only the port is replaced."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import yaml

from recipes.local_service import dataset_service

DOCS = Path(__file__).parent.parent / "docs"


def commands(page: str) -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_the_tutorial_runs_from_top_to_bottom(tmp_path, samples):
    page = (DOCS / "tutorials" / "dataset_service.md").read_text()
    shutil.copytree(samples, tmp_path / "images")
    (tmp_path / "my_file.csv").write_text("a,b\n1,2\n")
    starting, *lines = commands(page)
    assert starting == "python -m datapipes.service --root datasets --port 8080"
    said = []
    with dataset_service(tmp_path / "datasets") as service:
        for line in lines:
            here = line.replace("localhost:8080", f"127.0.0.1:{service.port}").replace(" /datasets/", " mounted/")
            done = subprocess.run(
                ["bash", "-e", "-c", here.replace("curl ", "curl -sS ")],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                env={"PATH": f"{sysconfig.get_path('scripts')}:/usr/bin:/bin"},
            )
            assert done.returncode == 0, (line, done.stderr)
            said.append(done.stdout)
    assert said[0] == '{"datasets":[]}'
    assert said[4] in page  # the refusal, word for word
    assert said[5].startswith("my_images: 60 files sent")
    assert '"files":60' in said[8]
    assert said[-1].startswith("mounted/my_images: 60 files fetched")
    for path in samples.rglob("*.JPEG"):
        fetched = tmp_path / "mounted" / "my_images" / path.relative_to(samples)
        assert fetched.read_bytes() == path.read_bytes()
    assert (tmp_path / "my_images.tar").stat().st_size > 60 * 512


def test_the_job_of_the_tutorial_is_the_recipe():
    page = (DOCS / "tutorials" / "dataset_service.md").read_text()
    shown = re.search(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    recipe = DOCS.parent / "recipes" / "kubernetes" / "trainingjob.yaml"
    assert shown and yaml.safe_load(shown[1]) == yaml.safe_load(recipe.read_text())
