"""Trains a classifier of irises, saves it as an MLflow model and writes what a batch deployment of it is to score.

Arguments: the folder of the model, the folder of the input. Prints the right predictions, one in a line.
"""

import pathlib
import sys

import mlflow.sklearn
from mlflow.models import infer_signature
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

to = pathlib.Path(sys.argv[2])
to.mkdir()
iris = load_iris(as_frame=True)
model = LogisticRegression(max_iter=500).fit(iris.data, iris.target)
right = model.predict(iris.data)
mlflow.sklearn.save_model(model, sys.argv[1], signature=infer_signature(iris.data, right))
iris.data[:60].to_csv(to / "a.csv", index=False)
iris.data[60:100].to_json(to / "b.jsonl", orient="records", lines=True)
iris.data[100:].assign(note="ignored").to_csv(to / "c, last.csv", index=False)
text = iris.data[:5].astype(object)
text.iloc[3, 2] = "torn"
text.to_csv(to / "bad.csv", index=False)
(to / "notes.doc").write_text("not a table")
print(*right, sep="\n")
