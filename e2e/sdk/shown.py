"""Reads what berth's `show` and `list` printed with Azure's own loaders, and compares it with what Azure's client shows itself.

Argument: the folder the output lies in, NOUN+NAME[+VERSION].yml and .json, list+NOUN.json. Prints a line for each thing that was
the same and could be read; ends with an error otherwise.
"""

import json
import logging
import os
import pathlib
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

from azure.ai.ml import (
    MLClient,
    load_component,
    load_data,
    load_datastore,
    load_environment,
    load_job,
    load_model,
    load_workspace,
)
from azure.ai.ml.entities._builders.base_node import BaseNode
from azure.identity import DefaultAzureCredential

folder = pathlib.Path(sys.argv[1])
client = MLClient(
    DefaultAzureCredential(),
    os.environ["AZURE_SUBSCRIPTION_ID"],
    os.environ["AZURE_RESOURCE_GROUP"],
    os.environ["AZUREML_WORKSPACE_NAME"],
)
loaders = {
    "job": load_job,
    "data": load_data,
    "environment": load_environment,
    "model": load_model,
    "component": load_component,
    "datastore": load_datastore,
    "workspace": load_workspace,
}
getters = {
    "job": client.jobs.get,
    "data": client.data.get,
    "environment": client.environments.get,
    "model": client.models.get,
    "component": client.components.get,
    "datastore": client.datastores.get,
    "workspace": client.workspaces.get,
}


def plain(entity):
    """What az prints of an entity: its dictionary as JSON, enumerations by their value."""
    if isinstance(entity, BaseNode):
        entity = entity._to_job()
    return json.loads(json.dumps(entity._to_dict(), default=lambda o: getattr(o, "value", str(o))))


def differences(theirs, ours, path=""):
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(set(theirs) | set(ours)):
            at = f"{path}.{key}"
            if key not in ours:
                if theirs[key] != "":  # az shows no vault as an empty text, which no file may hold
                    yield f"{at}: {theirs[key]!r} is missing"
            elif key not in theirs:
                yield f"{at}: {ours[key]!r} is shown, and not by the SDK"
            else:
                yield from differences(theirs[key], ours[key], at)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for i, (a, b) in enumerate(zip(theirs, ours)):
            yield from differences(a, b, f"{path}[{i}]")
    elif path == ".services.Studio.endpoint":
        if not theirs.startswith(ours):  # the client adds the tenant
            yield f"{path}: {theirs!r}, ours {ours!r}"
    elif isinstance(theirs, str) and theirs.startswith(("CreatedByType.", "JobStatus.")):
        if theirs.split(".")[1] != str(ours).upper():  # 1.35 prints the name of its own enumeration
            yield f"{path}: {theirs!r}, ours {ours!r}"
    elif theirs != ours or type(theirs) is not type(ours):
        yield f"{path}: {theirs!r}, ours {ours!r}"


def load(noun, path):
    return loaders[noun](source=path)


failed = False
for file in sorted(folder.glob("*.yml")):
    noun, *ref = file.stem.split("+")
    entity = getters[noun](*ref)
    for line in differences(plain(entity), json.loads(file.with_suffix(".json").read_text())):
        print(f"{file.stem}: {line}")
        failed = True
    for path in (file, file.with_suffix(".json")):
        loaded = load(noun, path)
        assert loaded.name == entity.name, (file, loaded.name)
        if noun == "job":
            assert loaded.command == entity.command and set(loaded.inputs) == set(entity.inputs), loaded
    print("same and read:", *file.stem.split("+"))

for file in sorted(folder.glob("list+*.json")):
    noun = file.stem.split("+")[1]
    items = json.loads(file.read_text())
    assert items, file
    for item in items:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as one:
            json.dump(item, one)
            one.flush()
            assert load(noun, one.name).name == item["name"], item
    print("read from a list:", noun)
sys.exit(failed)
