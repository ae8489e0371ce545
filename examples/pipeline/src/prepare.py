"""Makes points near a line and splits them in two."""

import argparse
import json
import pathlib
import random

args = argparse.ArgumentParser()
args.add_argument("--slope", type=float)
args.add_argument("--points", type=int)
args.add_argument("--train", type=pathlib.Path)
args.add_argument("--test", type=pathlib.Path)
args = args.parse_args()

random.seed(1)
points = [(x, args.slope * x + random.gauss(0, 0.1)) for x in (random.random() for _ in range(args.points))]
cut = len(points) * 4 // 5
for folder, part in ((args.train, points[:cut]), (args.test, points[cut:])):
    (folder / "points.json").write_text(json.dumps(part))
    print(f"{len(part)} points for {folder.name}")
