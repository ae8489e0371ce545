import numpy as np
import pandas as pd
import sklearn
from sklearn.linear_model import LogisticRegression

import azureml.mlflow  # noqa: F401, part of the curated list
import mlflow

frame = pd.DataFrame({"x": np.arange(20.0)}).append(pd.DataFrame({"x": [20.0]}))  # pandas below 2
model = LogisticRegression().fit(frame[["x"]], frame["x"] > 10)
mlflow.log_metric("accuracy", model.score(frame[["x"]], frame["x"] > 10))
print("sklearn", sklearn.__version__, "rows", len(frame), "accuracy", model.score(frame[["x"]], frame["x"] > 10))
