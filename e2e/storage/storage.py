"""Storage elsewhere with the unmodified SDK: datastores of Azure's kinds are created, listed and used. Prints one line for each thing
that was seen to work.

Arguments: the endpoint of an emulator of Azure's Blob service, its account and key. The environment is that of `berth azure-env`.
"""

import os
import sys

from azure.ai.ml import Input, MLClient, Output, command
from azure.ai.ml.entities import (
    AccountKeyConfiguration,
    AzureBlobDatastore,
    AzureDataLakeGen2Datastore,
    AzureFileDatastore,
    Data,
    Environment,
    ServicePrincipalConfiguration,
)
from azure.core.exceptions import HttpResponseError
from azure.identity import DefaultAzureCredential

endpoint, account, key = sys.argv[1:]
client = MLClient(
    DefaultAzureCredential(),
    os.environ["AZURE_SUBSCRIPTION_ID"],
    os.environ["AZURE_RESOURCE_GROUP"],
    os.environ["AZUREML_WORKSPACE_NAME"],
)


def seen(what):
    print("seen:", what, flush=True)


where = {"account_name": account, "endpoint": endpoint, "protocol": "http"}
by_key = AccountKeyConfiguration(account_key=key)
principal = ServicePrincipalConfiguration(tenant_id="t", client_id="c", client_secret="s3cret")
for made in (
    AzureBlobDatastore(name="blobs", container_name="box", credentials=by_key, **where),
    AzureDataLakeGen2Datastore(name="files", filesystem="box", credentials=by_key, **where),
    AzureDataLakeGen2Datastore(name="principal", filesystem="box", credentials=principal, **where),
    AzureFileDatastore(name="share", file_share_name="box", credentials=by_key, **where),
):
    client.datastores.create_or_update(made)
    got = client.datastores.get(made.name)
    assert type(got) is type(made) and got.account_name == account, got
    assert key not in str(got) and "s3cret" not in str(got), got
names = {d.name for d in client.datastores.list()}
assert names >= {"blobs", "files", "principal", "share", "workspaceblobstore"}, names
assert "lake" not in names, names  # of a kind that the SDK does not know and would fail at
seen("datastores of each kind: create, get, list")

client.environments.create_or_update(Environment(name="plain", image="example/none:1"))
client.data.create_or_update(Data(name="alpha", path="azureml://datastores/blobs/paths/in/a.txt", type="uri_file"))


def run(name, datastore, path):
    job = client.jobs.create_or_update(
        command(
            name=name,
            command="cat ${{inputs.folder}}/a.txt ${{inputs.asset}} > ${{outputs.o}}/both.txt && cat ${{outputs.o}}/both.txt",
            environment="plain@latest",
            properties={"berth.environment": "host"},
            compute="local",
            inputs={"folder": Input(type="uri_folder", path=path), "asset": Input(type="uri_file", path="azureml:alpha:1")},
            outputs={"o": Output(type="uri_folder", path=f"azureml://datastores/{datastore}/paths/out/{name}", name=name, version="7")},
        )
    )
    client.jobs.stream(job.name)
    job = client.jobs.get(job.name)
    assert job.status == "Completed", job
    asset = client.data.get(name, version="7")
    assert f"/datastores/{datastore}/paths/out/{name}" in asset.path, asset.path
    return asset


made = run("byblob", "blobs", "azureml://datastores/blobs/paths/in/")
seen("a job reads from blobs and writes to them, its output is an asset")
run("bylake", "files", "azureml://datastores/files/paths/in/")
seen("the same by a file system")
run("bys3", "lake", "azureml://datastores/lake/paths/in/")
seen("the same by S3")

for datastore, why in (("principal", "ServicePrincipal"), ("share", "AzureFile")):
    try:
        job = client.jobs.create_or_update(
            command(
                command="cat ${{inputs.i}}/a.txt",
                environment="plain@latest",
                properties={"berth.environment": "host"},
                compute="local",
                inputs={"i": Input(type="uri_folder", path=f"azureml://datastores/{datastore}/paths/in/")},
            )
        )
        try:
            client.jobs.stream(job.name)
            raise AssertionError(f"a job that reads from {datastore} has run")
        except Exception as e:
            assert why in str(e), e
    except HttpResponseError as e:
        assert why in str(e), e
seen("what cannot be reached is told")
