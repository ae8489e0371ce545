"""Fits a line through the origin by gradient descent."""

import argparse
import json
import pathlib

args = argparse.ArgumentParser()
args.add_argument("--points", type=pathlib.Path)
args.add_argument("--steps", type=int, default=100)
args.add_argument("--model", type=pathlib.Path)
args = args.parse_args()

points = json.loads((args.points / "points.json").read_text())
slope = 0.0
for _ in range(args.steps):
    slope -= 0.2 * sum(2 * (slope * x - y) * x for x, y in points) / len(points)
loss = sum((slope * x - y) ** 2 for x, y in points) / len(points)
print(f"after {args.steps} steps: slope {slope:.3f}, loss {loss:.4f}")
args.model.write_text(json.dumps({"slope": slope, "loss": loss, "steps": args.steps}))
