"""Storage elsewhere with the unmodified SDK: datastores of Azure's kinds are created, listed and used. Prints one line for each thing
that was seen to work.

Each storage has the file in/a.txt and the table table/MLTable of table/rows.csv. Arguments: the endpoint of an emulator of Azure's Blob service, its account and key; the same of a file share, and its name. The environment is that of
`berth azure-env`.
"""

import os
import sys

from azure.ai.ml import Input, MLClient, Output, command
from azure.ai.ml.constants import InputOutputModes
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

endpoint, account, key, share_endpoint, share_account, share_key, share = sys.argv[1:]
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
    AzureFileDatastore(
        name="share",
        file_share_name=share,
        account_name=share_account,
        endpoint=share_endpoint,
        protocol="http",
        credentials=AccountKeyConfiguration(account_key=share_key),
    ),
):
    client.datastores.create_or_update(made)
    got = client.datastores.get(made.name)
    assert type(got) is type(made) and got.account_name == made.account_name, got
    assert key not in str(got) and share_key not in str(got) and "s3cret" not in str(got), got
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
            command="cat ${{inputs.folder}}/a.txt ${{inputs.asset}} > ${{outputs.o}}/both.txt && cat ${{outputs.o}}/both.txt"
            " && echo changed > ${{inputs.own}}/a.txt && echo ${{inputs.uri}} > ${{outputs.o}}/direct.txt",
            environment="plain@latest",
            properties={"berth.environment": "host"},
            compute="local",
            inputs={
                "folder": Input(type="uri_folder", path=path, mode=InputOutputModes.RO_MOUNT),
                "own": Input(type="uri_folder", path=path, mode=InputOutputModes.DOWNLOAD),
                "uri": Input(type="uri_folder", path=path, mode=InputOutputModes.DIRECT),
                "asset": Input(type="uri_file", path="azureml:alpha:1"),
            },
            outputs={
                "o": Output(
                    type="uri_folder",
                    path=f"azureml://datastores/{datastore}/paths/out/{name}",
                    mode=InputOutputModes.RW_MOUNT,
                    name=name,
                    version="7",
                )
            },
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
run("bydisk", "disk", "azureml://datastores/disk/paths/in/")
seen("the same by a folder")
run("byshare", "share", "azureml://datastores/share/paths/in/")
seen("the same by a file share")

def table(name, datastore):
    """A table in every mode, a writable copy of a folder, and an output that is uploaded at the end."""
    at = f"azureml://datastores/{datastore}/paths"
    job = client.jobs.create_or_update(
        command(
            name=name,
            command="cat ${{inputs.rows}}/rows.csv > ${{outputs.o}}/mounted && cp ${{inputs.own}}/rows.csv ${{outputs.o}}/own && echo more >> ${{inputs.own}}/rows.csv"
            " && cp ${{inputs.whole}}/rows.csv ${{outputs.o}}/whole && test -f ${{inputs.whole}}/MLTable && ! test -e ${{inputs.rows}}/MLTable"
            " && echo ${{inputs.uri}} > ${{outputs.o}}/uri && echo changed > ${{inputs.copy}}/a.txt && echo new > ${{inputs.copy}}/b.txt && echo one > ${{outputs.file}}",
            environment="plain@latest",
            properties={"berth.environment": "host"},
            compute="local",
            inputs={
                "rows": Input(type="mltable", path=f"{at}/table", mode=InputOutputModes.EVAL_MOUNT),
                "own": Input(type="mltable", path=f"{at}/table", mode=InputOutputModes.EVAL_DOWNLOAD),
                "whole": Input(type="mltable", path=f"{at}/table", mode=InputOutputModes.RO_MOUNT),
                "uri": Input(type="mltable", path=f"{at}/table", mode=InputOutputModes.DIRECT),
                "copy": Input(type="uri_folder", path=f"{at}/in", mode=InputOutputModes.RW_MOUNT),
            },
            outputs={
                "o": Output(type="uri_folder", path=f"{at}/out/{name}", mode=InputOutputModes.UPLOAD),
                "file": Output(type="uri_file", path=f"{at}/out/{name}.txt", mode=InputOutputModes.RW_MOUNT),
            },
        )
    )
    client.jobs.stream(job.name)
    job = client.jobs.get(job.name)
    assert job.status == "Completed", job


for datastore in ("blobs", "files", "lake", "share", "disk"):
    table("table" + datastore, datastore)
    seen(f"a table of {datastore} in every mode")

for datastore, why in (("principal", "is not a host of Azure"),):
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
