"""Saves models of several signatures in a folder, and serves them as MLflow does, each below its name.

Arguments: the folder. The first line that is printed is the port.
"""

import os
import socket
import sys
import time

import mlflow
import numpy as np
import pandas as pd
import uvicorn
from mlflow.models import ModelSignature, infer_signature
from mlflow.pyfunc import scoring_server
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
from starlette.applications import Starlette
from starlette.routing import Mount


class Columns(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        factor = (params or {}).get("factor", 1)
        return pd.DataFrame({"sum": (model_input["a"] + model_input["b"]) * factor, "word": model_input["c"].astype(str).str.upper()})


class Matrix(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input):
        return np.asarray(model_input).sum(axis=1)


class Named(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input):
        return {"total": model_input["x"].sum(axis=1) + model_input["y"], "large": model_input["y"] > 1}


class Bare(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input):
        if isinstance(model_input, pd.DataFrame):
            return [f"{c} {model_input[c].tolist()}" for c in model_input.columns]
        if isinstance(model_input, dict):
            return [f"{k} {np.asarray(v).tolist()}" for k, v in sorted(model_input.items())]
        return np.asarray(model_input) / 2


class Days(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input):
        return [f"{d.isoformat()} {b.decode()} {n}" for d, b, n in zip(model_input["day"], model_input["bytes"], model_input["n"], strict=True)]


class Odd(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input):
        what = model_input["what"].iloc[0]
        if what == "slow":
            time.sleep(600)
        return {
            "nan": np.array([1.5, np.nan, np.inf]), "ragged": [[1], [2, 3]], "none": ["a", None], "text": "alone", "number": 3,
            "series": pd.Series([True, False]), "records": [{"a": 1, "b": "x"}], "raises": None, "dates": pd.DataFrame({"day": pd.to_datetime(["2026-01-31"])}),
        }[what] if what != "raises" else 1 / 0


models = {
    "columns": (Columns(), ModelSignature(
        Schema([ColSpec(DataType.double, "a"), ColSpec(DataType.long, "b"), ColSpec(DataType.string, "c")]),
        Schema([ColSpec(DataType.double, "sum"), ColSpec(DataType.string, "word")]), ParamSchema([ParamSpec("factor", DataType.long, 1)]))),
    "matrix": (Matrix(), ModelSignature(Schema([TensorSpec(np.dtype("float32"), (-1, 3))]), Schema([TensorSpec(np.dtype("float32"), (-1,))]))),
    "named": (Named(), infer_signature({"x": np.ones((2, 2)), "y": np.ones(2)}, {"total": np.ones(2), "large": np.array([True, False])})),
    "bare": (Bare(), None),
    "days": (Days(), ModelSignature(Schema([ColSpec(DataType.datetime, "day"), ColSpec(DataType.binary, "bytes"), ColSpec(DataType.integer, "n")]))),
    "odd": (Odd(), ModelSignature(Schema([ColSpec(DataType.string, "what")]))),
}
apps = []
for name, (model, signature) in models.items():
    path = os.path.join(sys.argv[1], name)
    mlflow.pyfunc.save_model(path, python_model=model, signature=signature, pip_requirements=["mlflow"])
    apps.append(Mount("/" + name, app=scoring_server.init(mlflow.pyfunc.load_model(path))))
sock = socket.socket()
sock.bind(("127.0.0.1", 0))
print(sock.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(Starlette(routes=apps), log_level="warning")).run(sockets=[sock])
