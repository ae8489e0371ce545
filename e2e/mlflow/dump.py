"""Prints what an MLflow server or folder has, so that two can be compared."""

import hashlib
import json
import os
import tempfile

import mlflow
from mlflow import MlflowClient

client = MlflowClient()


def ours(tags):
    return {k: v for k, v in tags.items() if not k.startswith("berth.") and k != "mlflow.modelVersions"}


def files(run_id):
    out = {}
    with tempfile.TemporaryDirectory() as d:
        root = mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="", dst_path=d) if client.list_artifacts(run_id) else d
        for folder, _, names in os.walk(root):
            for name in names:
                if name == "registered_model_meta":  # which loading a model writes beside it
                    continue
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    out[os.path.relpath(path, root)] = hashlib.sha256(f.read()).hexdigest()
    return out


def run(r):
    return {
        "name": r.info.run_name, "status": r.info.status, "start": r.info.start_time, "end": r.info.end_time, "params": r.data.params, "tags": ours(r.data.tags),
        "metrics": {k: [[repr(m.value), m.step, m.timestamp] for m in client.get_metric_history(r.info.run_id, k)] for k in r.data.metrics},
        "files": files(r.info.run_id),
    }


experiments = {}
for e in client.search_experiments():
    experiments[e.name] = {"tags": ours(e.tags), "runs": {r.info.run_id: run(r) for r in client.search_runs([e.experiment_id])}}
models = {}
for m in client.search_registered_models():
    versions = {}
    for v in client.search_model_versions(f"name='{m.name}'"):
        uri = f"models:/{m.name}/{v.version}"
        versions[v.version] = {
            "run": v.run_id, "description": v.description, "tags": ours(v.tags), "stage": v.current_stage,
            "doubles": list(mlflow.pyfunc.load_model(uri).predict([21])),
        }
    models[m.name] = {"description": m.description, "tags": ours(m.tags), "aliases": m.aliases, "versions": versions}
print(json.dumps({"experiments": experiments, "models": models}, indent=1, sort_keys=True))
