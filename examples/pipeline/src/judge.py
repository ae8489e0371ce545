"""Says how good a model is on points it has not seen."""

import argparse
import json
import pathlib

args = argparse.ArgumentParser()
args.add_argument("--points", type=pathlib.Path)
args.add_argument("--model", type=pathlib.Path)
args.add_argument("--report", type=pathlib.Path)
args = args.parse_args()

model = json.loads(args.model.read_text())
points = json.loads((args.points / "points.json").read_text())
loss = sum((model["slope"] * x - y) ** 2 for x, y in points) / len(points)
text = f"slope {model['slope']:.1f} after {model['steps']} steps, loss {loss:.4f} on {len(points)} new points"
print(text)
(args.report / "report.txt").write_text(text + "\n")
