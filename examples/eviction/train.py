"""Counts to thirty and remembers in ./outputs how far it came, so that a node taken away costs it seconds, not the run."""

import os
import pathlib
import time

checkpoint = pathlib.Path("outputs/step.txt")
first = int(checkpoint.read_text()) if checkpoint.exists() else 0
print(f"attempt {os.environ['AZUREML_RUN_ATTEMPT']} begins at step {first}", flush=True)
for step in range(first, 30):
    time.sleep(0.2)
    draft = checkpoint.with_suffix(".new")
    draft.write_text(str(step + 1))
    draft.replace(checkpoint)  # never half a checkpoint
print("trained 30 steps", flush=True)
