"""What somebody does with Azure's plugin for MLflow, by the azureml:// address that the workspace shows.

From outside and in a job: the same file is both. Each part says "seen: ..." once it has checked what came back.
"""

import os
import sys
import tempfile

import mlflow
import numpy
from mlflow import MlflowClient
from sklearn.linear_model import LogisticRegression

uri, model_name = sys.argv[1], sys.argv[2]
inside = "MLFLOW_RUN_ID" in os.environ
x, y = numpy.arange(20).reshape(-1, 1), numpy.repeat([0, 1], 10)


def seen(what):
    print("seen: " + what, flush=True)


mlflow.set_tracking_uri(uri)
client = MlflowClient()
if not inside:
    mlflow.set_experiment("by plugin")

with mlflow.start_run() as run, tempfile.TemporaryDirectory() as d:
    id = run.info.run_id
    mlflow.log_params({"lr": 0.1, "depth": 3})
    for step in range(5):
        mlflow.log_metrics({"loss": 1 / (step + 1)}, step=step)
    mlflow.set_tag("kind", "by plugin")
    mlflow.log_text("hello", "notes/hello.txt")
    os.makedirs(os.path.join(d, "tree", "leaf"))
    for name in "a.txt", "leaf/b ü.txt":
        with open(os.path.join(d, "tree", name), "w") as f:
            f.write(name)
    mlflow.log_artifacts(os.path.join(d, "tree"), "tree")
    model = LogisticRegression().fit(x, y)
    how = {"artifact_path": "model"} if mlflow.__version__.startswith("2.") else {"name": "model"}
    logged = mlflow.sklearn.log_model(model, input_example=x[:1], **how)
if inside:
    assert id == sys.argv[3], id
back = client.get_run(id)
assert back.data.params == {"lr": "0.1", "depth": "3"} and back.data.metrics["loss"] == 0.2, back.data
assert back.info.artifact_uri.startswith("azureml://"), back.info
assert len(client.get_metric_history(id, "loss")) == 5
seen("parameters, metrics and tags")

files = {f.path for f in client.list_artifacts(id)}
assert {"notes", "tree"} <= files, files
assert {f.path for f in client.list_artifacts(id, "tree")} == {"tree/a.txt", "tree/leaf"}, client.list_artifacts(id, "tree")
with tempfile.TemporaryDirectory() as d:
    path = mlflow.artifacts.download_artifacts(run_id=id, artifact_path="tree", dst_path=d)
    assert open(os.path.join(path, "leaf", "b ü.txt")).read() == "leaf/b ü.txt"
    assert mlflow.artifacts.load_text(back.info.artifact_uri + "/notes/hello.txt") == "hello"
try:
    mlflow.artifacts.download_artifacts(run_id=id, artifact_path="none.txt")
    sys.exit("a file that is not there was downloaded")
except Exception as e:
    assert "none.txt" in str(e), e
seen("files, listed and downloaded")

found = mlflow.search_runs([back.info.experiment_id], "metrics.loss < 0.5 AND params.lr = '0.1' AND tags.kind = 'by plugin'")
assert id in list(found.run_id) and str(found.artifact_uri[0]).startswith("azureml://"), found
seen("search")

first = mlflow.register_model(logged.model_uri, model_name)
assert first.version == "1" and first.status == "READY", first
second = mlflow.register_model("runs:/%s/model" % id, model_name)
assert second.version == "2", second
client.set_registered_model_alias(model_name, "champion", "2")
for at in "models:/%s/1" % model_name, "models:/%s@champion" % model_name, "runs:/%s/model" % id:
    loaded = mlflow.pyfunc.load_model(at)
    assert numpy.array_equal(loaded.predict(x), model.predict(x)), at
seen("registering, an alias, and loading by it")

if not inside:
    # The plain client, with the plugin installed beside it, has the same run by its own address.
    for name, value in zip(("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_SERVER_CERT_PATH"), sys.argv[4:6]):
        os.environ[name] = value
    mlflow.set_tracking_uri(sys.argv[3])
    plain = MlflowClient().get_run(id)
    assert plain.info.artifact_uri.startswith("mlflow-artifacts:"), plain.info
    assert mlflow.artifacts.load_text("runs:/%s/notes/hello.txt" % id) == "hello"
    loaded = mlflow.pyfunc.load_model("models:/%s/2" % model_name)
    assert numpy.array_equal(loaded.predict(x), model.predict(x))
    seen("the plain client beside the plugin")
