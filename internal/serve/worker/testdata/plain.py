import json
import os


def init():
    pass


def run(raw_data):
    d = json.loads(raw_data)
    k = d.get("k") if isinstance(d, dict) else "echo"
    if k == "none":
        return None
    if k == "str":
        return "text"
    if k == "num":
        return 3.5
    if k == "bool":
        return True
    if k == "list":
        return [1, 2]
    if k == "tuple":
        return (1, 2)
    if k == "dict":
        return {"a": 1}
    if k == "unicode":
        return {"a": "é ∑"}
    if k == "nan":
        return [float("nan"), float("inf")]
    if k == "set":
        return {1, 2}
    if k == "bytes":
        return b"abc"
    if k == "generator":
        return (i for i in range(3))
    if k == "object":
        return object()
    if k == "type":
        return type(raw_data).__name__
    if k == "raise":
        raise ValueError("boom")
    if k == "stop":
        raise StopIteration
    if k == "length":
        return len(raw_data)
    if k == "exit":
        os._exit(7)
    return d
