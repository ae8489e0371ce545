"""Fills an MLflow server or folder with what people have there."""

import os
import sys
import tempfile

import mlflow
from mlflow import MlflowClient

modern = int(mlflow.__version__.split(".")[0]) >= 3
more = len(sys.argv) > 1 and sys.argv[1] == "more"
client = MlflowClient()


def double(model_input):
    return [2 * x for x in model_input]


if more:
    mlflow.set_experiment("iris")
    with mlflow.start_run(run_name="later"):
        mlflow.log_metric("loss", 0.125, step=1)
    first = client.search_runs([client.get_experiment_by_name("iris").experiment_id], "attributes.run_name = 'first'")[0]
    client.log_metric(first.info.run_id, "loss", 0.0625, step=5000)
    client.set_tag(first.info.run_id, "reviewed", "yes")
    sys.exit()

client.set_experiment_tag(client.create_experiment("iris"), "team", "red")
mlflow.set_experiment("iris")
with mlflow.start_run(run_name="first", tags={"owner": "ann"}) as run:
    mlflow.log_params({"lr": "0.1", "model/depth": "3"})
    client.log_batch(run.info.run_id, metrics=[mlflow.entities.Metric("loss", 1 / (i + 1), 1700000000000 + i, i) for i in range(1000)])
    for i, value in enumerate([float("nan"), 1e-300, -2.5]):
        mlflow.log_metric("odd/one", value, step=i)
    mlflow.log_text("hello", "notes/a b.txt")
    mlflow.log_text("", "empty.txt")
    with mlflow.start_run(run_name="child", nested=True):
        mlflow.log_metric("acc", 0.5)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "model")
        mlflow.pyfunc.save_model(path, python_model=double, pip_requirements=["mlflow"])
        mlflow.log_artifacts(path, "model")
client.create_registered_model("doubler", tags={"kind": "toy"}, description="doubles")
for i in range(3):
    client.create_model_version("doubler", f"{run.info.artifact_uri}/model", run.info.run_id, description=f"v{i + 1}", tags={"n": str(i)})
client.delete_model_version("doubler", "2")
client.set_registered_model_alias("doubler", "champion", "3")
if modern:
    with mlflow.start_run(run_name="logs a model"):
        mlflow.pyfunc.log_model(name="logged", python_model=double, pip_requirements=["mlflow"], registered_model_name="of-mlflow-3")
try:
    with mlflow.start_run(run_name="fails"):
        raise RuntimeError
except RuntimeError:
    pass
gone = client.create_run(client.get_experiment_by_name("iris").experiment_id, run_name="gone")
client.delete_run(gone.info.run_id)
client.create_experiment("without runs")
