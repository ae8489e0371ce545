"""An unmodified azure-ai-ml script: upload code, submit, stream, download. Run it after

    eval "$(berth azure-env --export)"

with azure-ai-ml and azure-identity installed.
"""

import os
import pathlib
import sys

from azure.ai.ml import Input, MLClient, Output, command
from azure.ai.ml.entities import Environment
from azure.identity import DefaultAzureCredential

client = MLClient(
    DefaultAzureCredential(),
    os.environ["AZURE_SUBSCRIPTION_ID"],
    os.environ["AZURE_RESOURCE_GROUP"],
    os.environ["AZUREML_WORKSPACE_NAME"],
)
here = pathlib.Path(__file__).parent
job = command(
    code=str(here / "src"),
    command="python count.py --text ${{inputs.text}} --repeat ${{inputs.repeat}} --out ${{outputs.counts}}",
    inputs={"text": Input(type="uri_file", path=str(here / "src" / "poem.txt")), "repeat": 3},
    outputs={"counts": Output(type="uri_folder")},
    environment=Environment(
        image="mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04",
        conda_file={"name": "count", "dependencies": ["python=3.11"]},
    ),
    compute="local",
    experiment_name="sdk",
)
job = client.jobs.create_or_update(job)
print("submitted", job.name)
client.jobs.stream(job.name)
client.jobs.download(job.name, download_path=sys.argv[1] if len(sys.argv) > 1 else "downloaded", all=True)
print("status", client.jobs.get(job.name).status)
