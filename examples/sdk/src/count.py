"""Counts the words of a text and writes them to a folder."""

import argparse
import collections
import json
import pathlib

parser = argparse.ArgumentParser()
parser.add_argument("--text", type=pathlib.Path)
parser.add_argument("--repeat", type=int)
parser.add_argument("--out", type=pathlib.Path)
args = parser.parse_args()
words = collections.Counter(args.text.read_text().lower().split())
print("most common:", words.most_common(3), "repeat", args.repeat, flush=True)
args.out.mkdir(parents=True, exist_ok=True)
(args.out / "counts.json").write_text(json.dumps(words))
