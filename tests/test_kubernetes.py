"""The manifests fit the schemas of the cluster that reads them, and their commands run as they stand."""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from service_fixtures import ask

from datapipes.catalog.dataset_service import DatasetService
from datapipes.service.push import push
from recipes.local_process import LocalProcess, free_port

FOLDER = Path(__file__).parent.parent / "recipes" / "kubernetes"
VERSIONS = ["1.30", "1.37"]  # backoffLimitPerIndex came with 1.29; 1.37 is the newest that is packaged
TRAINING_JOB = """
apiVersion: "breezeml.ai/v1"
kind: TrainingJob
metadata:
  name: example-job
  namespace: lattice
spec:
  minSize: 1
  maxSize: 3
  dataset: my_dataset
  replicaSpecs:
    template:
      spec:
        containers:
          - name: trainingjob
            image: breezeml/lattice-resnet
            imagePullPolicy: Always
            command: ["python", "-u", "main.py"]
"""


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def manifest(name: str, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(d for d in documents(name) if d["kind"] == kind)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["dataset-service.yaml", "job.yaml", "job-streaming.yaml"])
def test_what_kubernetes_reads_fits_its_schemas(name, version):
    for document in documents(name):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_training_job_is_the_guides_own():
    assert documents("trainingjob.yaml") == [yaml.safe_load(TRAINING_JOB)]
    template = documents("trainingjob.yaml")[0]["spec"]["replicaSpecs"]["template"]
    check_template(template)


def test_the_pytorchjob_fits_the_models_of_kubeflows_operator():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its generated code is of Python 3.6
        from kubeflow.training import models
    (job,) = documents("pytorchjob.yaml")
    assert job["apiVersion"] == "kubeflow.org/v1" and job["kind"] == "PyTorchJob"
    check_model(models, job, "KubeflowOrgV1PyTorchJob", "PyTorchJob")
    workers = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert workers["template"]["spec"]["containers"][0]["name"] == "pytorch"  # the one that the operator looks for
    with pytest.raises(AssertionError, match=r"PyTorchJob\.spec\.elasticPolicy: no field minReplica"):
        job["spec"]["elasticPolicy"]["minReplica"] = 1
        check_model(models, job, "KubeflowOrgV1PyTorchJob", "PyTorchJob")


def check_model(models: Any, value: Any, kind: str, where: str) -> None:
    """`value` fits the generated model `kind`: known fields only, each of its type."""
    if kind.startswith("dict("):
        for name, inner in value.items():
            check_model(models, inner, kind[len("dict(str, ") : -1], f"{where}.{name}")
    elif kind == "V1PodTemplateSpec":
        check_template(value)
    elif kind.startswith("KubeflowOrg"):
        model = getattr(models, kind)
        types = {model.attribute_map[name]: of for name, of in model.openapi_types.items()}
        for name, inner in value.items():
            assert name in types, f"{where}: no field {name}"
            check_model(models, inner, types[name], f"{where}.{name}")
    elif kind in ("str", "int", "bool"):
        assert type(value).__name__ == kind, f"{where}: {value!r} is no {kind}"
    else:
        assert kind == "V1ObjectMeta", f"{where}: {kind} is not checked here"


def check_template(template: dict[str, Any]) -> None:
    pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
    for version in VERSIONS:
        kubernetes_validate.validate(pod, version, strict=True)


def templates() -> dict[str, dict[str, Any]]:
    """The pod of every manifest of ours."""
    return {
        "dataset-service": manifest("dataset-service.yaml", "Deployment")["spec"]["template"]["spec"],
        "job": manifest("job.yaml", "Job")["spec"]["template"]["spec"],
        "job-streaming": manifest("job-streaming.yaml", "Job")["spec"]["template"]["spec"],
        "pytorchjob": manifest("pytorchjob.yaml", "PyTorchJob")["spec"]["pytorchReplicaSpecs"]["Worker"]["template"][
            "spec"
        ],
    }


def test_every_volume_that_is_mounted_is_there_and_every_recipe_too():
    for pod in templates().values():
        names = {volume["name"] for volume in pod["volumes"]}
        for part in pod["containers"] + pod.get("initContainers", []):
            assert {mount["name"] for mount in part["volumeMounts"]} <= names
            for argument in part["command"]:
                if argument.startswith("recipes/"):
                    assert (FOLDER.parent.parent / argument).is_file(), argument


def test_workers_of_the_job_meet_at_worker_0():
    for name in ("job.yaml", "job-streaming.yaml"):
        job, service = manifest(name, "Job"), manifest(name, "Service")
        pod = job["spec"]["template"]["spec"]
        name_of_job, subdomain = job["metadata"]["name"], pod["subdomain"]
        assert f"--rdzv-endpoint={name_of_job}-0.{subdomain}:29400" in pod["containers"][0]["command"]
        assert service["metadata"]["name"] == subdomain and service["spec"]["selector"]["job-name"] == name_of_job


def mounted(command: list[str], part: dict[str, Any], mounts: dict[str, Path]) -> list[str]:
    """The command, with each mount path read as the folder that is mounted there."""
    for mount in part["volumeMounts"]:
        if mount["name"] in mounts:
            command = [word.replace(mount["mountPath"], str(mounts[mount["name"]])) for word in command]
    python = {"python": sys.executable}
    return [python.get(word, word) for word in command]


def test_the_service_and_the_fetching_containers_run_as_they_stand(tmp_path, samples):
    reader, writer = secrets.token_hex(32), secrets.token_hex(32)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "tokens").write_text(f"read {reader}\nwrite {writer}\n")
    part = templates()["dataset-service"]["containers"][0]
    command = mounted(part["command"], part, {"datasets": tmp_path / "root", "tokens": tmp_path / "secret"})
    port = free_port()
    command = [word.replace("8080", str(port)).replace("0.0.0.0", "127.0.0.1") for word in command]
    url = f"http://127.0.0.1:{port}"
    with LocalProcess("dataset-service", command, is_ready=lambda: ask(url, path="/healthz").status == 200):
        push(samples, "my_dataset", DatasetService(url, token=writer))
        for name in ("job", "pytorchjob"):
            fetch = templates()[name]["initContainers"][0]
            variables = {variable["name"] for variable in fetch["env"]}
            assert variables == {"DATASET_SERVICE_URL", "DATASET_SERVICE_TOKEN"}
            environment = {"DATASET_SERVICE_URL": url, "DATASET_SERVICE_TOKEN": reader}
            words = mounted(fetch["command"], fetch, {"datasets": tmp_path / name})
            done = subprocess.run(words, env=os.environ | environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            fetched = tmp_path / name / "my_dataset"
            names = sorted(p.relative_to(fetched).as_posix() for p in fetched.rglob("*.JPEG"))
            assert names == sorted(p.relative_to(samples).as_posix() for p in samples.rglob("*.JPEG"))


def test_the_comments_name_files_that_are_there():
    for file in FOLDER.glob("*.yaml"):
        for line in file.read_text().splitlines():
            if "kubectl apply -f" in line:
                assert (FOLDER.parent.parent / shlex.split(line)[-1]).is_file()
