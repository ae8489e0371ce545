import argparse
import json
import os
import pathlib

p = argparse.ArgumentParser()
p.add_argument("--learning_rate", type=float, default=0.1)
p.add_argument("--epochs", type=int, default=3)
p.add_argument("--data")
p.add_argument("--model", default="outputs/model")
a = p.parse_args()
rows = 0
if a.data:
    files = [a.data] if os.path.isfile(a.data) else sorted(str(f) for f in pathlib.Path(a.data).rglob("*.csv"))
    rows = sum(len(open(f).read().splitlines()) - 1 for f in files)
loss = 1.0
for epoch in range(a.epochs):
    loss *= 1 - a.learning_rate
    print(f"epoch {epoch} loss {loss:.4f}")
os.makedirs(a.model, exist_ok=True)
json.dump({"loss": loss, "rows": rows}, open(os.path.join(a.model, "model.json"), "w"))
print("rows", rows, "run", os.environ.get("AZUREML_RUN_ID", "?") != "?")
