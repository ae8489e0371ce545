"""What somebody does with the plain mlflow client, from outside and in a job: the same file is both.

Each part says "seen: ..." once it has checked what came back.
"""

import os
import sys
import tempfile

import lightgbm
import mlflow
import numpy
from mlflow import MlflowClient
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

inside = "MLFLOW_RUN_ID" in os.environ
model_name = sys.argv[1]
x, y = load_iris(return_X_y=True)
client = MlflowClient()


def seen(what):
    print("seen: " + what, flush=True)


def log_by_hand():
    with mlflow.start_run() as run:
        mlflow.log_params({"lr": 0.1, "depth": 3})
        for step in range(20):
            mlflow.log_metrics({"loss": 1 / (step + 1), "acc": step / 20}, step=step)
        mlflow.log_metric("odd", float("nan"))
        mlflow.set_tag("kind", "by hand")
        mlflow.log_text("hello", "notes/hello.txt")
        mlflow.log_dict({"a": [1, 2]}, "d.json")
    back = client.get_run(run.info.run_id)
    assert back.data.params == {"lr": "0.1", "depth": "3"}, back.data.params
    assert back.data.metrics["loss"] == 1 / 20 and back.data.metrics["odd"] != back.data.metrics["odd"], back.data.metrics
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [m.step for m in history] == list(range(20)), history
    assert mlflow.artifacts.load_text(back.info.artifact_uri + "/notes/hello.txt") == "hello"
    assert {"notes", "d.json"} <= {f.path for f in client.list_artifacts(run.info.run_id)}
    seen("logging by hand")
    return run.info


def autolog_sklearn(experiment):
    mlflow.sklearn.autolog()
    with mlflow.start_run() as run:
        LogisticRegression(max_iter=300, C=0.7).fit(x, y)
    mlflow.sklearn.autolog(disable=True)
    back = client.get_run(run.info.run_id)
    assert back.data.params["C"] == "0.7" and back.data.metrics["training_accuracy_score"] > 0.9, back.data
    assert back.inputs.dataset_inputs, back.inputs
    best = mlflow.search_runs([experiment], "metrics.training_accuracy_score > 0.9", order_by=["metrics.training_accuracy_score DESC"])
    assert run.info.run_id in list(best.run_id), best
    model = mlflow.sklearn.load_model("runs:/%s/model" % run.info.run_id)
    assert (model.predict(x) == y).mean() > 0.9
    seen("autolog of scikit-learn, with its model")
    return run.info.run_id


def autolog_lightgbm():
    mlflow.lightgbm.autolog()
    with mlflow.start_run() as run:
        train = lightgbm.Dataset(x, y)
        lightgbm.train({"objective": "multiclass", "num_class": 3, "verbose": -1, "num_threads": 1}, train, 10, [train], ["train"])
    mlflow.lightgbm.autolog(disable=True)
    back = client.get_run(run.info.run_id)
    assert len(client.get_metric_history(run.info.run_id, "train-multi_logloss")) == 10, back.data.metrics
    assert back.data.params["objective"] == "multiclass"
    seen("autolog of lightgbm, a metric for each round")


def registry(run_id):
    first = mlflow.register_model("runs:/%s/model" % run_id, model_name)
    assert first.version == "1" and first.status == "READY", first
    with mlflow.start_run():
        model = LogisticRegression(max_iter=300, C=0.5).fit(x, y)
        how = {"artifact_path": "model"} if mlflow.__version__.startswith("2.") else {"name": "model"}
        mlflow.sklearn.log_model(model, registered_model_name=model_name, input_example=x[:1], **how)
    versions = client.search_model_versions("name = '%s'" % model_name)
    assert sorted(v.version for v in versions) == ["1", "2"], versions
    client.set_registered_model_alias(model_name, "champion", "2")
    client.set_model_version_tag(model_name, "2", "checked", "yes")
    loaded = mlflow.pyfunc.load_model("models:/%s@champion" % model_name)
    assert numpy.array_equal(loaded.predict(x), model.predict(x))
    with tempfile.TemporaryDirectory() as d:
        path = mlflow.artifacts.download_artifacts("models:/%s/1" % model_name, dst_path=d)
        assert os.path.exists(os.path.join(path, "MLmodel"))
    seen("registering, an alias, and loading by it")


def nested(experiment):
    with mlflow.start_run(run_name="parent") as parent:
        for i in range(3):
            with mlflow.start_run(run_name="child-%d" % i, nested=True):
                mlflow.log_metric("score", i)
    children = mlflow.search_runs([experiment], "tags.mlflow.parentRunId = '%s'" % parent.info.run_id, order_by=["metrics.score DESC"])
    assert list(children["metrics.score"]) == [2, 1, 0], children
    seen("nested runs, found by their parent and sorted")


if not inside:
    mlflow.set_experiment("story")
first = log_by_hand()
if inside:
    assert first.run_id == sys.argv[2], first
nested(first.experiment_id)
registry(autolog_sklearn(first.experiment_id))
autolog_lightgbm()
