import json
import os


def init():
    global weights
    with open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "weights.json")) as f:
        weights = json.load(f)


def run(data):
    areas = json.loads(data)["square_metres"]
    return {"prices": [weights["base"] + weights["square_metre"] * a for a in areas], "currency": os.environ["CURRENCY"]}
