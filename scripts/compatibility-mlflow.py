"""Writes the last section of docs/compatibility.md from what scripts/compatibility-mlflow.sh measured.

Arguments: the JSON of run_mlflow_suite.py, the page.
"""

import collections
import datetime
import json
import os
import pathlib
import sys

TITLE = "## MLflow's own tests"

tests = json.loads(pathlib.Path(sys.argv[1]).read_text())["tests"]
page = pathlib.Path(sys.argv[2])
areas = collections.defaultdict(collections.Counter)
for t in tests.values():
    if t["outcome"] != "excluded":
        areas[t["area"]][t["outcome"]] += 1
passed = sum(c["passed"] for c in areas.values())
total = sum(sum(c.values()) for c in areas.values())

lines = [
    TITLE,
    "",
    f"Written by `scripts/compatibility-mlflow.sh` on {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}, server {os.environ['VERSION']}: the tests of MLflow 3.15.1 itself, unchanged, run",
    "through its client with a new workspace for each. Tests that need access to another process (a SQL store, a mocked client) or an",
    "[unsupported area](tracking-reference.md#what-is-served) are left out.",
    "",
    "| area | passed | of |",
    "|---|---|---|",
]
for name in sorted(areas):
    lines.append(f"| {name} | {areas[name]['passed']} | {sum(areas[name].values())} |")
lines.append(f"| **all** | **{passed}** | **{total}** |")
failed = sorted(i for i, t in tests.items() if t["outcome"] not in ("passed", "excluded"))
if failed:
    lines += ["", "Not passed:", "", *(f"- `{i.rsplit('::', 1)[-1]}` ({tests[i]['area']}): {tests[i]['outcome']}" for i in failed)]
head = page.read_text().split(TITLE)[0].rstrip("\n")
page.write_text(head + "\n\n" + "\n".join(lines) + "\n")
