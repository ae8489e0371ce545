"""Writes docs/compatibility.md from what scripts/compatibility.sh measured.

Arguments: the JSON of run_e2e.py, the JSON of compare.py (may be absent), the folder of run_e2e.py.
"""

import collections
import datetime
import json
import os
import pathlib
import re
import sys

tests = json.loads(pathlib.Path(sys.argv[1]).read_text())["tests"]
corpus = pathlib.Path(sys.argv[2])
accept = pathlib.Path(sys.argv[3])
client = re.search(r"azure-ai-ml==([\d.]+)", (accept / "requirements.txt").read_text()).group(1)

folders = collections.defaultdict(collections.Counter)
for t in tests:
    folders[t["id"].split("/", 1)[0]][t["outcome"]] += 1
passed = sum(c["passed"] for c in folders.values())

print("# Compatibility")
print()
print("Written by `make compatibility`, from a run against a fresh server; nothing here is entered by hand.")
print()
print(f"- date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}")
print(f"- server: {os.environ['VERSION']}")
print(f"- client: azure-ai-ml {client}, as released")
print()
print("## Microsoft's live tests")
print()
print("The end-to-end tests of azure-ai-ml itself, unchanged, in live mode. Counted are those that a compatible server can pass without Azure's")
print("own services behind it (class A: control plane, assets, submission; class B: a job that ends, a deployment that answers).")
print()
print("| folder | passed | of |")
print("|---|---|---|")
for name in sorted(folders):
    c = folders[name]
    print(f"| {name} | {c['passed']} | {sum(c.values())} |")
print(f"| **all** | **{passed}** | **{len(tests)}** |")
failed = [t for t in tests if t["outcome"] != "passed"]
if failed:
    print()
    print("Not passed:")
    print()
    for t in sorted(failed, key=lambda t: t["id"]):
        error = re.sub(r"https?://\S+", "<address>", (t.get("error") or "").strip().splitlines()[0] if t.get("error") else t["outcome"])
        print(f"- `{t['id'].rsplit('::', 1)[-1]}` ({t['id'].split('/', 1)[0]}): {error[:200].replace('|', '/')}")

if corpus.exists():
    kinds = collections.defaultdict(collections.Counter)
    for row in json.loads(corpus.read_text()):
        if row["verdict"] not in ("skipped", "missing", "crash"):
            kinds[row["kind"]][row["verdict"] in ("same", "refused")] += 1
    agree = sum(c[True] for c in kinds.values())
    total = sum(sum(c.values()) for c in kinds.values())
    print()
    print("## YAML")
    print()
    print(f"Files of azure-ai-ml's own test configurations: what `berth render` makes of each, compared with the body the client sends, or refused where")
    print(f"the client refuses. {agree} of {total} agree, {100 * agree / total:.2f} %.")
    print()
    print("| kind | agree | of |")
    print("|---|---|---|")
    for name in sorted(kinds):
        print(f"| {name} | {kinds[name][True]} | {sum(kinds[name].values())} |")
