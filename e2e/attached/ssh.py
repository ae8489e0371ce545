"""Attaches a machine over SSH with the unmodified SDK, from Python and from YAML, and runs a job on each.

Arguments: a folder to work in, the account, the port of its sshd at 127.0.0.1, the file of its key, the home of the account.
The environment is that of `berth azure-env`.
"""

import os
import pathlib
import sys
import time

from azure.ai.ml import Input, MLClient, Output, command, load_compute
from azure.ai.ml.entities import Environment, VirtualMachineCompute, VirtualMachineSshSettings
from azure.core.exceptions import HttpResponseError
from azure.identity import DefaultAzureCredential

work, account, port, key, home = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]
(work / "data").mkdir(parents=True)
(work / "data" / "words.txt").write_text("some words\n")
(work / "conda.yml").write_text("dependencies:\n- python\n")
client = MLClient(
    DefaultAzureCredential(), os.environ["AZURE_SUBSCRIPTION_ID"], os.environ["AZURE_RESOURCE_GROUP"], os.environ["AZUREML_WORKSPACE_NAME"]
)
machine = "/subscriptions/0/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/127.0.0.1"
environment = client.environments.create_or_update(Environment(name="plain", image="example/none:1", conda_file=str(work / "conda.yml")))


def run(compute):
    job = client.jobs.create_or_update(
        command(
            command="echo ran in $HOME; cp ${{inputs.words}}/words.txt ${{outputs.copy}}/copy.txt",
            inputs={"words": Input(type="uri_folder", path=str(work / "data"))},
            outputs={"copy": Output(type="uri_folder")},
            environment=environment,
            compute=compute,
        )
    )
    while job.status not in ("Completed", "Failed", "Canceled"):
        time.sleep(0.3)
        job = client.jobs.get(job.name)
    left = work / job.name
    client.jobs.download(job.name, download_path=str(left), all=True)
    said = "".join(p.read_text() for p in left.rglob("std_log.txt"))
    assert job.status == "Completed", (job.status, said)
    assert f"ran in {home}" in said, said  # on the machine, not on the server
    assert next(left.rglob("copy.txt")).read_text() == "some words\n"


def seen(compute):
    """What a client is shown of a compute: never its key."""
    assert isinstance(compute, VirtualMachineCompute) and compute.type == "virtualmachine", compute
    assert compute.resource_id == machine and compute.provisioning_state == "Succeeded", compute
    settings = compute.ssh_settings
    assert (settings.admin_username, settings.ssh_port, settings.admin_password) == (account, port, None), vars(settings)


settings = VirtualMachineSshSettings(admin_username=account, ssh_port=port, ssh_private_key_file=key)
made = client.compute.begin_attach(VirtualMachineCompute(name="python", resource_id=machine, description="of the lab", ssh_settings=settings)).result()
seen(made)
seen(client.compute.get("python"))
run("python")
print("seen: python", flush=True)

path = work / "compute.yml"
path.write_text(
    f"name: yaml\ntype: virtualmachine\nresource_id: {machine}\n"
    f"ssh_settings:\n  admin_username: {account}\n  ssh_port: {port}\n  ssh_private_key_file: {key}\n"
)
seen(client.compute.begin_create_or_update(load_compute(source=str(path))).result())
run("yaml")
listed = {c.name: c for c in client.compute.list(compute_type="VirtualMachine")}
assert set(listed) == {"python", "yaml", "local"}, listed  # local is the server's own machine
seen(listed["yaml"])
print("seen: yaml", flush=True)

# Attaching it again changes what may change; the key need not be given again. Where it is may not change.
again = VirtualMachineSshSettings(admin_username=account, ssh_port=port)
made = client.compute.begin_attach(VirtualMachineCompute(name="yaml", resource_id=machine, description="other words", ssh_settings=again)).result()
assert made.description == "other words", made.description
run("yaml")
try:
    client.compute.begin_attach(
        VirtualMachineCompute(name="yaml", resource_id=machine, ssh_settings=VirtualMachineSshSettings(admin_username="another", ssh_port=port))
    ).result()
    raise AssertionError("the account of a machine was changed")
except HttpResponseError as e:
    assert "detach it and attach it again" in str(e), e
print("seen: again", flush=True)

for name in ("python", "yaml"):
    client.compute.begin_delete(name, action="Detach").result()
assert not {"python", "yaml"} & {c.name for c in client.compute.list()}
print("seen: detach", flush=True)
