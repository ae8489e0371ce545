"""What somebody with azure-ai-ml does with a compute instance. Each thing seen is a line."""

import os
import sys

from azure.ai.ml import MLClient, command
from azure.ai.ml.constants import TimeZone
from azure.ai.ml.entities import (
    ComputeInstance,
    ComputeSchedules,
    ComputeStartStopSchedule,
    CronTrigger,
    Environment,
)
from azure.core.exceptions import HttpResponseError
from azure.identity import DefaultAzureCredential

client = MLClient(
    DefaultAzureCredential(),
    os.environ["AZURE_SUBSCRIPTION_ID"],
    os.environ["AZURE_RESOURCE_GROUP"],
    os.environ["AZUREML_WORKSPACE_NAME"],
)


def seen(what):
    print("seen:", what, flush=True)


def box(**more):
    return ComputeInstance(name="sdkbox", size="Standard_DS2_v2", idle_time_before_shutdown_minutes=45, tags={"team": "sea"}, **more)


schedule = ComputeStartStopSchedule(action="Stop", trigger=CronTrigger(expression="30 18 * * *", time_zone=TimeZone.W_EUROPE_STANDARD_TIME))
made = client.compute.begin_create_or_update(box(schedules=ComputeSchedules(compute_start_stop=[schedule]))).result()
assert isinstance(made, ComputeInstance), type(made)
assert made.state == "Running", made.state
assert made.idle_time_before_shutdown_minutes == 45 and made.tags == {"team": "sea"}
assert made.schedules.compute_start_stop[0].trigger.expression == "30 18 * * *"
assert made.last_operation["operation_name" if "operation_name" in made.last_operation else "operationName"] == "Create", made.last_operation
names = [s.get("display_name") or s.get("displayName") for s in made.services]
assert names == ["Jupyter", "JupyterLab", "Terminal"], made.services
seen("create")

listed = {c.name: c for c in client.compute.list()}
assert listed["sdkbox"].state == "Running" and listed["sdkbox"].type == "computeinstance", listed
seen("list")

client.environments.create_or_update(Environment(name="plain", image="mcr.microsoft.com/plain", conda_file={"name": "plain", "dependencies": ["python"]}))
job = client.jobs.create_or_update(command(command="echo on $AZUREML_ARM_WORKSPACE_NAME", environment="plain@latest", compute="sdkbox"))
client.jobs.stream(job.name)
assert client.jobs.get(job.name).status == "Completed"
seen("job")

assert client.compute.begin_stop("sdkbox").result() is None
assert client.compute.get("sdkbox").state == "Stopped"
assert client.compute.begin_start("sdkbox").result() is None
assert client.compute.get("sdkbox").state == "Running"
assert client.compute.begin_restart("sdkbox").result() is None
assert client.compute.get("sdkbox").state == "Running"
seen("stop, start, restart")

try:
    client.compute.begin_create_or_update(ComputeInstance(name="never", size="Standard_DS2_v2", idle_time_before_shutdown="PT0M")).result()
    sys.exit("an idle time of zero was taken")
except HttpResponseError as e:
    assert "immediately" in str(e), e
seen("refusal")

client.compute.begin_delete("sdkbox").result()
assert "sdkbox" not in {c.name for c in client.compute.list()}
seen("delete")
