"""Counts steps, and goes on where an interrupted attempt ended.

Interrupt it with `berth compute evict CLUSTER --simulate` while it runs.
"""

import argparse
import json
import os
import pathlib
import signal
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--seconds", type=float, default=1.0)
args = parser.parse_args()

checkpoint = pathlib.Path("outputs/checkpoint.json")
state = {"step": 0, "attempts": []}
if checkpoint.exists():
    state = json.loads(checkpoint.read_text())
attempt = int(os.environ["AZUREML_RUN_ATTEMPT"])
state["attempts"].append({"attempt": attempt, "from": state["step"]})
print(f"attempt {attempt} begins at step {state['step']}", flush=True)


def save():
    """A file that is there is whole: it is written under another name first."""
    draft = checkpoint.with_suffix(".new")
    draft.write_text(json.dumps(state))
    draft.replace(checkpoint)


def interrupted(*_):
    save()
    print(f"interrupted at step {state['step']}", flush=True)
    sys.exit(143)


signal.signal(signal.SIGTERM, interrupted)
while state["step"] < args.steps:
    time.sleep(args.seconds)
    state["step"] += 1
    print(f"step {state['step']}", flush=True)
    if state["step"] % 5 == 0:
        save()
save()
print("done", flush=True)
