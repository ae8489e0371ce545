"""What an Azure ML user does with managed compute, with the unmodified SDK. Prints one line for each thing that was seen to work.

Arguments: a folder to work in. The environment is that of `berth azure-env`.
"""

import os
import pathlib
import sys
import time

from azure.ai.ml import MLClient, command
from azure.ai.ml.entities import AmlCompute, Environment
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential

os.environ.setdefault("AZUREML_RUN_POLLING_INTERVAL_MIN", "0.2")
os.environ.setdefault("AZUREML_RUN_POLLING_INTERVAL_MAX", "0.5")

work = pathlib.Path(sys.argv[1])
work.mkdir(parents=True, exist_ok=True)
client = MLClient(
    DefaultAzureCredential(),
    os.environ["AZURE_SUBSCRIPTION_ID"],
    os.environ["AZURE_RESOURCE_GROUP"],
    os.environ["AZUREML_WORKSPACE_NAME"],
)


def seen(what):
    print("seen:", what, flush=True)


def run(compute, text, **more):
    """Runs a command to its end and returns the job."""
    job = client.jobs.create_or_update(command(command=text, environment="plain@latest", compute=compute, **more))
    while job.status not in ("Completed", "Failed", "Canceled"):
        time.sleep(0.2)
        job = client.jobs.get(job.name)
    return job


conda = work / "conda.yml"
conda.write_text("dependencies:\n- python\n")
client.environments.create_or_update(Environment(name="plain", image="example/none:1", conda_file=str(conda)))

# Sizes, prices, usage.
sizes = list(client.compute.list_sizes())
names = {s.name for s in sizes}
assert {"Standard_DS3_v2", "Standard_NC6s_v3", "Standard_M128ms"} <= names, sorted(names)[:20]
assert len(list(client.compute.list_usage())) > 0
seen("sizes and usage")

# A cluster from nothing: create, read, update, run, see its nodes, delete.
made = client.compute.begin_create_or_update(
    AmlCompute(name="cpu", size="Standard_DS3_v2", min_instances=0, max_instances=2, idle_time_before_scale_down=60, tier="low_priority")
).result()
assert isinstance(made, AmlCompute) and made.provisioning_state == "Succeeded", made
got = client.compute.get("cpu")
assert (got.min_instances, got.max_instances, got.tier, got.size.lower()) == (0, 2, "low_priority", "standard_ds3_v2"), got
got.idle_time_before_scale_down, got.max_instances = 120, 3
assert client.compute.begin_update(got).result().max_instances == 3
assert client.compute.get("cpu").idle_time_before_scale_down == 120
assert "cpu" in [c.name for c in client.compute.list()]
seen("cluster: create, show, update, list")

job = run("cpu", "echo on $BERTH_TASK; test -n \"$AZUREML_RUN_ID\"")
assert job.status == "Completed" and "cpu" in job.compute, job
nodes = list(client.compute.list_nodes("cpu"))
assert len(nodes) == 1, nodes
seen("cluster: a job makes a node")

pair = run("cpu", "echo rank $NODE_RANK of $AZUREML_NODE_COUNT", instance_count=2)
assert pair.status == "Completed", pair
assert len(list(client.compute.list_nodes("cpu"))) == 2
seen("cluster: a job of two nodes")

alone = client.jobs.create_or_update(
    command(command="echo serverless", environment="plain@latest", instance_type="Standard_DS3_v2", instance_count=1)
)
while alone.status not in ("Completed", "Failed", "Canceled"):
    time.sleep(0.2)
    alone = client.jobs.get(alone.name)
assert alone.status == "Completed", alone
seen("serverless")

for bad, word in (
    (AmlCompute(name="bad", size="Standard_DS3_v2", min_instances=3, max_instances=1), "max"),
    (AmlCompute(name="bad", size="Standard_Nope"), "Standard_Nope"),
):
    try:
        client.compute.begin_create_or_update(bad).result()
        raise AssertionError(f"{bad.size} was accepted")
    except HttpResponseError as e:
        assert word in str(e), e
seen("refusals")

client.compute.begin_delete("cpu").result()
for _ in range(300):
    try:
        client.compute.get("cpu")
        time.sleep(0.1)
    except ResourceNotFoundError:
        break
else:
    raise AssertionError("the cluster is still there")
seen("cluster: delete")
