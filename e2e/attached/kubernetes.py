"""Attaches a Kubernetes cluster with the unmodified SDK, from Python and from YAML, and runs a job on each.

Arguments: a folder to work in, the image of the jobs. The environment is that of `berth azure-env`.
"""

import os
import pathlib
import sys
import time

from azure.ai.ml import MLClient, command, load_compute
from azure.ai.ml.entities import Environment, KubernetesCompute
from azure.identity import DefaultAzureCredential

work, image = pathlib.Path(sys.argv[1]), sys.argv[2]
work.mkdir(parents=True, exist_ok=True)
client = MLClient(
    DefaultAzureCredential(), os.environ["AZURE_SUBSCRIPTION_ID"], os.environ["AZURE_RESOURCE_GROUP"], os.environ["AZUREML_WORKSPACE_NAME"]
)
cluster = "/subscriptions/0/resourceGroups/g/providers/Microsoft.Kubernetes/connectedClusters/lab"
environment = client.environments.create_or_update(Environment(name="box", image=image))


def run(compute):
    job = client.jobs.create_or_update(command(command="echo ran on $(hostname) >outputs/said.txt", environment=environment, compute=compute))
    while job.status not in ("Completed", "Failed", "Canceled"):
        time.sleep(0.3)
        job = client.jobs.get(job.name)
    assert job.status == "Completed", job.status
    client.jobs.download(job.name, download_path=str(work / compute), all=True)
    said = next((work / compute).rglob("said.txt")).read_text()
    assert said.startswith("ran on b-"), said


made = client.compute.begin_attach(KubernetesCompute(name="python", resource_id=cluster, namespace="ml")).result()
assert isinstance(made, KubernetesCompute) and made.namespace == "ml", made
run("python")
print("seen: python", flush=True)

path = work / "compute.yml"
path.write_text(f"name: yaml\ntype: kubernetes\nresource_id: {cluster}\nnamespace: ml\n")
client.compute.begin_attach(load_compute(source=str(path))).result()
run("yaml")
assert {c.name for c in client.compute.list(compute_type="Kubernetes")} >= {"python", "yaml"}
print("seen: yaml", flush=True)

client.compute.begin_delete("yaml", action="Detach").result()
assert "yaml" not in {c.name for c in client.compute.list()}
print("seen: detach", flush=True)
