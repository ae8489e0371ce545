"""Trains a classifier on the digits that ship with scikit-learn; logs how it goes and keeps the model."""

import argparse

import mlflow
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--alpha", type=float, required=True)
args = parser.parse_args()

x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.3, random_state=0)

# In a job this is the job's run: nothing has to be configured.
with mlflow.start_run():
    mlflow.set_tag("berth.metric", "accuracy")  # what `berth ps` shows
    mlflow.log_param("alpha", args.alpha)
    model = SGDClassifier(alpha=args.alpha, random_state=0)
    for epoch in range(10):
        model.partial_fit(x_train, y_train, classes=range(10))
        mlflow.log_metric("accuracy", model.score(x_test, y_test), step=epoch)
    mlflow.sklearn.log_model(model, "model", registered_model_name="digits", pip_requirements=["scikit-learn"])
