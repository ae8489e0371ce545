"""Finds the best run of an experiment, gives its model the alias "champion", and loads the model by it."""

import mlflow
from mlflow import MlflowClient
from sklearn.datasets import load_digits

best = mlflow.search_runs(experiment_names=["digits"], filter_string="metrics.accuracy > 0.5", order_by=["metrics.accuracy DESC"], max_results=1).iloc[0]
client = MlflowClient()
version = next(v for v in client.search_model_versions("name = 'digits'") if v.run_id == best.run_id)
client.set_registered_model_alias("digits", "champion", version.version)

x, y = load_digits(return_X_y=True)
model = mlflow.sklearn.load_model("models:/digits@champion")
print(f"champion: version {version.version} of run {best.run_id}, alpha {best['params.alpha']}, {(model.predict(x) == y).mean():.2f} of the digits right")
