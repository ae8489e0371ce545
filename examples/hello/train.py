"""The smallest job there is: it says hello, and leaves a file behind."""

import pathlib

print("hello from", pathlib.Path.cwd().name)
pathlib.Path("outputs").mkdir(exist_ok=True)
pathlib.Path("outputs/hello.txt").write_text("it ran\n")
