"""A datastore with the credentials of a service principal, with the unmodified SDK. Prints one line for each thing that was seen to work.

Arguments: the endpoint of an emulator of Azure's Blob service and its account; the address of the authority, and the secret that it accepts. The
environment is that of `berth azure-env`.
"""

import os
import sys

from azure.ai.ml import Input, MLClient, Output, command
from azure.ai.ml.entities import AzureDataLakeGen2Datastore, Environment, ServicePrincipalConfiguration
from azure.identity import DefaultAzureCredential

endpoint, account, authority, secret = sys.argv[1:]
client = MLClient(
    DefaultAzureCredential(),
    os.environ["AZURE_SUBSCRIPTION_ID"],
    os.environ["AZURE_RESOURCE_GROUP"],
    os.environ["AZUREML_WORKSPACE_NAME"],
)


def create(name, secret):
    client.datastores.create_or_update(
        AzureDataLakeGen2Datastore(
            name=name,
            filesystem="box",
            account_name=account,
            endpoint=endpoint,
            protocol="http",
            credentials=ServicePrincipalConfiguration(
                tenant_id="the-tenant", client_id="the-app", client_secret=secret, authority_url=authority
            ),
        )
    )
    got = client.datastores.get(name)
    assert got.credentials.client_id == "the-app" and secret not in str(got), got


def run(datastore):
    at = f"azureml://datastores/{datastore}/paths"
    return client.jobs.create_or_update(
        command(
            command="cp ${{inputs.i}}/a.txt ${{outputs.o}}/o.txt",
            environment="plain@latest",
            properties={"berth.environment": "host"},
            compute="local",
            inputs={"i": Input(type="uri_folder", path=f"{at}/in")},
            outputs={"o": Output(type="uri_folder", path=f"{at}/out")},
        )
    )


client.environments.create_or_update(Environment(name="plain", image="example/none:1"))
create("good", secret)
job = run("good")
client.jobs.stream(job.name)
assert client.jobs.get(job.name).status == "Completed", client.jobs.get(job.name)
print("seen: a job reads and writes what a service principal opens", flush=True)

create("bad", "wrong-secret")
job = run("bad")
try:
    client.jobs.stream(job.name)
    raise AssertionError("a job with a principal that is refused has run")
except Exception as e:
    assert "AADSTS7000215" in str(e) and "datastore bad" in str(e), e
print("seen: a principal that is refused is told", flush=True)
