"""What somebody does who scores files with batch endpoints, with the unmodified SDK. Prints one line for each thing that was seen to work.

Arguments: a folder to work in. The environment is that of `berth azure-env`.
"""

import csv
import os
import pathlib
import sys
import time

from azure.ai.ml import Input, MLClient, Output, command, dsl
from azure.ai.ml.constants import AssetTypes, BatchDeploymentOutputAction
from azure.ai.ml.entities import (
    BatchEndpoint,
    BatchRetrySettings,
    CodeConfiguration,
    Data,
    Environment,
    Model,
    ModelBatchDeployment,
    ModelBatchDeploymentSettings,
    PipelineComponentBatchDeployment,
)
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential

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


def write(path, text):
    path = work / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def end(job):
    for _ in range(3000):
        got = client.jobs.get(job.name)
        if got.status in ("Completed", "Failed", "Canceled"):
            return got
        time.sleep(0.1)
    raise AssertionError(f"{job.name} stays {got.status}")


def rows(job, file="predictions.csv"):
    got = end(job)
    assert got.status == "Completed", got
    to = work / job.name
    client.jobs.download(job.name, download_path=to, output_name="score")
    with open(to / file, newline="") as f:  # the SDK puts results of batch endpoints there
        return list(csv.reader(f))


for i in range(3):
    write(f"data/s{i}.txt", f"ship {i}, at sea")
write("model/factor.txt", "10")
write(
    "code/score.py",
    """
import os

def init():
    global factor
    with open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model", "factor.txt")) as f:
        factor = int(f.read())

def run(mini_batch):
    out = []
    for path in mini_batch:
        with open(path) as f:
            out.append([os.path.basename(path), len(f.read()) * factor])
    return out
""",
)

# A scoring script, as in the public samples: an endpoint, a deployment with code, model and environment, the default.
endpoint = client.batch_endpoints.begin_create_or_update(BatchEndpoint(name="ships", description="scores ships", tags={"team": "harbour"})).result()
assert endpoint.scoring_uri and endpoint.auth_mode.lower() == "aad_token", endpoint
env = Environment(name="plain", image="example/none:1", conda_file=write("conda.yml", "dependencies:\n- python\n"))
deployment = ModelBatchDeployment(
    name="script",
    endpoint_name="ships",
    model=Model(path=str(work / "model"), type=AssetTypes.CUSTOM_MODEL, name="factor", version="1"),
    environment=env,
    code_configuration=CodeConfiguration(code=str(work / "code"), scoring_script="score.py"),
    compute="local",
    settings=ModelBatchDeploymentSettings(
        mini_batch_size=2,
        max_concurrency_per_instance=2,
        instance_count=1,
        output_action=BatchDeploymentOutputAction.APPEND_ROW,
        output_file_name="predictions.csv",
        retry_settings=BatchRetrySettings(max_retries=1, timeout=60),
        error_threshold=0,
        logging_level="info",
    ),
)
client.batch_deployments.begin_create_or_update(deployment).result()
got = client.batch_deployments.get("script", "ships")
assert got.mini_batch_size == 2 and got.error_threshold == 0 and got.retry_settings.max_retries == 1, got
endpoint.defaults = {"deployment_name": "script"}
client.batch_endpoints.begin_create_or_update(endpoint).result()
assert client.batch_endpoints.get("ships").defaults.deployment_name == "script"
assert [d.name for d in client.batch_deployments.list("ships")] == ["script"]
seen("endpoint and deployment with a script")

want = [[f"s{i}.txt", "140"] for i in range(3)]
assert len("ship 0, at sea") == 14
first = client.batch_endpoints.invoke("ships", input=Input(path=str(work / "data"), type="uri_folder"))
assert rows(first) == want, rows(first)
seen("invoked with a folder")
job = client.batch_endpoints.invoke("ships", input=Input(path=str(work / "data" / "s1.txt"), type="uri_file"))
assert rows(job) == want[1:2], rows(job)
seen("invoked with a file")
client.data.create_or_update(Data(name="ships", version="1", path=str(work / "data"), type="uri_folder"))
job = client.batch_endpoints.invoke(
    "ships",
    deployment_name="script",
    inputs={"fleet": Input(path="azureml:ships:1", type="uri_folder")},
    outputs={"score": Output(type="uri_folder", path="azureml://datastores/workspaceblobstore/paths/results/today/")},
    params_override=[{"mini_batch_size": 3}, {"output_file_name": "fleet.csv"}],
)
assert rows(job, "fleet.csv") == want, rows(job, "fleet.csv")
seen("invoked with a data asset, an output and other settings")
named = client.batch_endpoints.invoke("ships", job_name="once", input=Input(path="azureml:ships:1", type="uri_folder"))
assert named.name == "once", named
try:
    client.batch_endpoints.invoke("ships", job_name="once", input=Input(path=str(work / "data" / "s1.txt"), type="uri_file"))
    raise AssertionError("the name of a job was taken twice")
except HttpResponseError as e:
    assert e.status_code == 409 and "once" in e.message, e
assert rows(named) == want
names = {j.name for j in client.batch_endpoints.list_jobs("ships")}
assert {first.name, job.name, "once"} <= names and len(names) == 4, names
children = list(client.jobs.list(parent_job_name=first.name))
assert [c.display_name for c in children] == ["batchscoring"], children
seen("jobs are listed, and a name is taken once")

# An MLflow model without a script: its own conda file says what it needs.
write("mlmodel/MLmodel", "flavors:\n  python_function:\n    code: code\n    loader_module: tides\n    env: {conda: conda.yaml}\n    data: data\nmodel_uuid: 0123456789abcdef0123456789abcdef\nmlflow_version: 3.17.2\n")
write("mlmodel/conda.yaml", "channels: [conda-forge]\ndependencies:\n- python\n- pip\n- pip:\n  - mlflow-skinny==3.17.2\n  - pandas\n  - numpy\n")
write("mlmodel/data/limit", "2")
write(
    "mlmodel/code/tides.py",
    """
class Tides:
    def __init__(self, limit):
        self.limit = limit

    def predict(self, data):
        return ["high" if x > self.limit else "low" for x in data["metres"]]

def _load_pyfunc(path):
    with open(path + "/limit") as f:
        return Tides(float(f.read()))
""",
)
write("tides/north.csv", "place,metres\nOban,3.1\nWick,1.2\n")
write("tides/south.csv", "place,metres\nDover,2.5\n")
model = client.models.create_or_update(Model(name="tides", version="1", path=str(work / "mlmodel"), type=AssetTypes.MLFLOW_MODEL))
client.batch_deployments.begin_create_or_update(
    ModelBatchDeployment(name="mlflow", endpoint_name="ships", model=model, compute="local", settings=ModelBatchDeploymentSettings(mini_batch_size=1, retry_settings=BatchRetrySettings(max_retries=1, timeout=120)))
).result()
job = client.batch_endpoints.invoke("ships", deployment_name="mlflow", input=Input(path=str(work / "tides"), type="uri_folder"))
assert rows(job) == [["north.csv", "high"], ["north.csv", "low"], ["south.csv", "high"]], rows(job)
seen("an MLflow model without a script")


# A pipeline component with a folder and a value.
count = command(
    name="count_words",
    version="1",
    command='for f in ${{inputs.text}}/*; do echo "$(basename $f) $(grep -c ${{inputs.word}} $f)"; done > ${{outputs.counts}}/counts.txt',
    environment=env,
    inputs={"text": Input(type="uri_folder"), "word": Input(type="string")},
    outputs={"counts": Output(type="uri_folder")},
)


@dsl.pipeline()
def counted(text: Input(type="uri_folder"), word: str = "ship"):
    step = count(text=text, word=word)
    return {"counts": step.outputs.counts}


component = client.components.create_or_update(counted().component)
client.batch_deployments.begin_create_or_update(
    PipelineComponentBatchDeployment(name="pipeline", endpoint_name="ships", component=component, settings={"default_compute": "local"})
).result()
job = client.batch_endpoints.invoke(
    "ships",
    deployment_name="pipeline",
    inputs={"text": Input(path="azureml:ships:1", type="uri_folder"), "word": Input(type="string", default="2")},
)
got = end(job)
assert got.status == "Completed", got
client.jobs.download(job.name, download_path=work / "counted", output_name="counts")
text = (work / "counted" / "named-outputs" / "counts" / "counts.txt").read_text()
assert text == "s0.txt 0\ns1.txt 0\ns2.txt 1\n", text
seen("a pipeline component with a folder and a value")

client.batch_deployments.begin_delete("mlflow", "ships").result()
client.batch_endpoints.begin_delete("ships").result()
try:
    client.batch_endpoints.get("ships")
    raise AssertionError("the endpoint is still there")
except ResourceNotFoundError:
    pass
assert client.jobs.get(first.name).status == "Completed"
seen("deleted, and its jobs are left")
