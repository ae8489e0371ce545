"""Trains a classifier on the digits that ship with scikit-learn, and keeps the model."""

import argparse
import json
import pathlib
import time

import joblib
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--model", type=pathlib.Path, default=pathlib.Path("outputs"))
args = parser.parse_args()

x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.3, random_state=0)
print(f"{len(x_train)} images to learn from, {len(x_test)} to test on", flush=True)

model = RandomForestClassifier(n_estimators=0, warm_start=True, random_state=0)
begin = time.time()
for i in range(1, args.rounds + 1):
    model.n_estimators += 40
    model.fit(x_train, y_train)
    accuracy = accuracy_score(y_test, model.predict(x_test))
    print(f"round {i}/{args.rounds}  trees {model.n_estimators:4d}  accuracy {accuracy:.4f}", flush=True)

args.model.mkdir(parents=True, exist_ok=True)
joblib.dump(model, args.model / "model.joblib")
(args.model / "metrics.json").write_text(json.dumps({"accuracy": accuracy, "seconds": round(time.time() - begin, 2)}))
print(f"kept the model: accuracy {accuracy:.4f}")
