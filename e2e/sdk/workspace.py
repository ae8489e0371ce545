"""Workspaces through Azure's SDK: created by its own template, shown, deleted with what is around them."""

import os
import sys

from azure.ai.ml import MLClient, command
from azure.ai.ml.entities import Workspace
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential


def seen(what):
    print("seen:", what, flush=True)


sub, group = os.environ["AZURE_SUBSCRIPTION_ID"], os.environ["AZURE_RESOURCE_GROUP"]
client = MLClient(DefaultAzureCredential(), sub, group)

made = client.workspaces.begin_create(Workspace(name="second", location="here", display_name="Second", description="made by the SDK", tags={"of": "story"})).result()
assert made.name == "second", made
got = client.workspaces.get("second")
assert (got.display_name, got.description, got.tags["of"]) == ("Second", "made by the SDK", "story"), got
assert not got.hbi_workspace and not got.enable_data_isolation, got
assert "/storageAccounts/second" in got.storage_account and "/vaults/second" in got.key_vault, got
assert "second" in {w.name for w in client.workspaces.list()}
seen("create by the SDK's own template")

inside = MLClient(DefaultAzureCredential(), sub, group, "second")
job = inside.jobs.create_or_update(command(command="echo inside", environment="azureml:AzureML-Minimal@latest", compute="local"))
inside.jobs.stream(job.name)
assert inside.jobs.get(job.name).status == "Completed"
seen("a job in it")

client.workspaces.begin_delete("second", delete_dependent_resources=True).result()
try:
    client.workspaces.get("second")
    sys.exit("it is still there")
except (HttpResponseError, ResourceNotFoundError):
    pass
seen("delete with dependent resources")
