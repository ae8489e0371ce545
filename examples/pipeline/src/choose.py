"""Keeps the model with the smaller loss."""

import json
import pathlib
import sys

models = [json.loads(pathlib.Path(p).read_text()) for p in sys.argv[1:3]]
best = min(models, key=lambda m: m["loss"])
print(f"the one of {best['steps']} steps is better")
pathlib.Path(sys.argv[3]).write_text(json.dumps(best))
