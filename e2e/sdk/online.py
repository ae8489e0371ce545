"""What somebody does who lets a model answer requests, with the unmodified SDK: an endpoint, blue, a test, green, mirrored requests,
ten percent, the flip, and the end. Prints one line for each thing that was seen to work.

Arguments: a folder to work in. The environment is that of `berth azure-env`.
"""

import json
import os
import pathlib
import ssl
import sys
import time
import urllib.error
import urllib.request

from azure.ai.ml import MLClient, load_online_deployment, load_online_endpoint
from azure.ai.ml.entities import (
    CodeConfiguration,
    Environment,
    ManagedOnlineDeployment,
    ManagedOnlineEndpoint,
    Model,
    OnlineRequestSettings,
    ProbeSettings,
)
from azure.ai.ml.exceptions import ValidationException
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential

work = pathlib.Path(sys.argv[1])
work.mkdir(parents=True, exist_ok=True)


def connect():
    """A client; one that has named a deployment in an invocation goes on naming it."""
    return MLClient(
        DefaultAzureCredential(),
        os.environ["AZURE_SUBSCRIPTION_ID"],
        os.environ["AZURE_RESOURCE_GROUP"],
        os.environ["AZUREML_WORKSPACE_NAME"],
    )


client = connect()
endpoints, deployments = client.online_endpoints, client.online_deployments


def seen(what):
    print("seen:", what, flush=True)


def write(path, text):
    path = work / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def refused(error, call):
    """The error of a call that has to be refused."""
    try:
        call()
    except error as e:
        return e
    raise AssertionError("it was not refused")


def until(what, check):
    for _ in range(1200):
        if check():
            return
        time.sleep(0.1)
    raise AssertionError(f"it does not become true that {what}")


def post(uri, key, body, **headers):
    """Status, text and headers of what the endpoint answers to any HTTP client."""
    context = ssl.create_default_context(cafile=os.environ["REQUESTS_CA_BUNDLE"])
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key, **{k.replace("_", "-"): v for k, v in headers.items()}}
    request = urllib.request.Request(uri, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, context=context) as r:
            return r.status, r.read().decode(), r.headers
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode(), e.headers


write(
    "src/score.py",
    """
import json
import os


def init():
    global factor, weight
    with open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model", "weight.json")) as f:
        weight = json.load(f)
    factor = int(os.environ["FACTOR"])
    print("init with factor", factor)


def run(raw_data):
    data = json.loads(raw_data)["data"]
    print("asked for", data)
    if data == "raise":
        raise ValueError("a fault of the script")
    return [factor * weight * x for x in data]
""",
)
write("broken/score.py", "def init():\n    raise ValueError('no weights in here')\n\n\ndef run(raw_data):\n    return raw_data\n")
write("model/weight.json", "10")
request = write("request.json", json.dumps({"data": [1, 2]}))
faulty = write("faulty.json", json.dumps({"data": "raise"}))
settings = {
    "model": Model(name="weight", version="1", path=str(work / "model")),
    "code_configuration": CodeConfiguration(code=str(work / "src"), scoring_script="score.py"),
    "environment": Environment(name="plain", version="1", image="example/none:1", conda_file=write("conda.yml", "dependencies:\n- python\n")),
    "instance_type": "Standard_DS3_v2",
    "instance_count": 1,
}

# The endpoint.
endpoint = endpoints.begin_create_or_update(
    ManagedOnlineEndpoint(name="houses", auth_mode="key", description="prices of houses", tags={"team": "homes"})
).result()
assert endpoint.provisioning_state == "Succeeded" and endpoint.scoring_uri.endswith("/score"), endpoint
assert endpoint.auth_mode == "key" and endpoint.tags == {"team": "homes"} and endpoint.traffic == {}, endpoint
assert "houses" in [e.name for e in endpoints.list()]
uri = endpoint.scoring_uri
keys = endpoints.get_keys("houses")
assert keys.primary_key and keys.secondary_key and keys.primary_key != keys.secondary_key
e = refused(HttpResponseError, lambda: endpoints.invoke("houses", request_file=request))
assert e.status_code == 404 and "traffic" in str(e), e
seen("endpoint, its keys, and no deployment yet")

# Blue.
blue = deployments.begin_create_or_update(
    ManagedOnlineDeployment(
        name="blue",
        endpoint_name="houses",
        environment_variables={"FACTOR": "2"},
        request_settings=OnlineRequestSettings(request_timeout_ms=30000, max_concurrent_requests_per_instance=2, max_queue_wait_ms=60000),
        readiness_probe=ProbeSettings(initial_delay=5, period=5, failure_threshold=20, timeout=2, success_threshold=1),
        **settings,
    )
).result()
assert blue.provisioning_state == "Succeeded", blue
got = deployments.get("blue", "houses")
assert got.instance_count == 1 and got.request_settings.max_concurrent_requests_per_instance == 2, got
assert got.request_settings.request_timeout_ms == 30000 and got.readiness_probe.failure_threshold == 20, got
assert got.environment_variables["FACTOR"] == "2" and got.code_configuration.scoring_script == "score.py", got
endpoint.traffic = {"blue": 100}
endpoint = endpoints.begin_create_or_update(endpoint).result()
assert endpoint.traffic == {"blue": 100}, endpoint.traffic
assert json.loads(endpoints.invoke("houses", request_file=request)) == [20, 40]
seen("blue, its settings and an answer")

# Logs, and what Azure's client shows of an error in the script.
assert "init with factor 2" in deployments.get_logs("blue", "houses", lines=100)
assert deployments.get_logs("blue", "houses", lines=100, container_type="storage-initializer")
e = refused(HttpResponseError, lambda: endpoints.invoke("houses", request_file=faulty))
assert e.status_code == 424 and "scoring script" in str(e), e
until("the trace is in the log", lambda: "a fault of the script" in deployments.get_logs("blue", "houses", lines=100))
seen("logs, and an error of the script")

# Green: tried out by its name before it has traffic.
green = ManagedOnlineDeployment(name="green", endpoint_name="houses", environment_variables={"FACTOR": "3"}, **settings)
deployments.begin_create_or_update(green).result()
assert sorted(d.name for d in deployments.list("houses")) == ["blue", "green"]
assert endpoints.get("houses").traffic == {"blue": 100, "green": 0}
assert json.loads(connect().online_endpoints.invoke("houses", request_file=request, deployment_name="green")) == [30, 60]
status, text, headers = post(uri, keys.primary_key, {"data": [1]}, azureml_model_deployment="green")
assert (status, json.loads(text), headers["azureml-model-deployment"]) == (200, [30], "green"), (status, text)
e = refused(ValidationException, lambda: connect().online_endpoints.invoke("houses", request_file=request, deployment_name="purple"))
assert "purple" in str(e), e
status, text, _ = post(uri, keys.primary_key, {"data": [1]}, azureml_model_deployment="purple")
assert status == 404 and "purple" in text, (status, text)
seen("green, by its name")

# Half of the requests go to green too; the answers are those of blue.
endpoint = endpoints.get("houses")
endpoint.traffic, endpoint.mirror_traffic = {"blue": 100}, {"green": 50}
assert endpoints.begin_create_or_update(endpoint).result().mirror_traffic == {"green": 50}


def mirrored():
    status, text, _ = post(uri, keys.primary_key, {"data": [4711]})
    assert (status, json.loads(text)) == (200, [20 * 4711]), (status, text)
    return "asked for [4711]" in deployments.get_logs("green", "houses", lines=200)


until("requests are mirrored", mirrored)
seen("mirrored requests")

# Ten percent, then all.
endpoint.traffic, endpoint.mirror_traffic = {"blue": 90, "green": 10}, {"green": 0}
endpoint = endpoints.begin_create_or_update(endpoint).result()
assert endpoint.traffic == {"blue": 90, "green": 10} and not endpoint.mirror_traffic, endpoint
counts = {20: 0, 30: 0}
until("both answer", lambda: counts.update({(n := json.loads(post(uri, keys.primary_key, {"data": [1]})[1])[0]): counts[n] + 1}) or min(counts.values()) > 3)
assert counts[20] > counts[30], counts
endpoint.traffic = {"blue": 60, "green": 60}
e = refused(HttpResponseError, lambda: endpoints.begin_create_or_update(endpoint).result())
assert e.status_code == 400 and "100" in str(e), e
endpoint.traffic = {"blue": 0, "green": 100}
assert endpoints.begin_create_or_update(endpoint).result().traffic == {"green": 100}
for _ in range(20):
    assert json.loads(post(uri, keys.primary_key, {"data": [1]})[1]) == [30]
seen("ten percent, and the flip")

# A change of a deployment, and one that fails.
green = deployments.get("green", "houses")
green.environment_variables, green.instance_count = {"FACTOR": "5"}, 2
deployments.begin_create_or_update(green).result()
assert deployments.get("green", "houses").instance_count == 2
assert json.loads(post(uri, keys.primary_key, {"data": [1]})[1]) == [50]
bad = ManagedOnlineDeployment(
    name="green", endpoint_name="houses", **{**settings, "code_configuration": CodeConfiguration(code=str(work / "broken"), scoring_script="score.py")}
)
e = refused(HttpResponseError, lambda: deployments.begin_create_or_update(bad).result())
assert "no weights in here" in str(e), e
assert deployments.get("green", "houses").provisioning_state == "Failed"
assert json.loads(post(uri, keys.primary_key, {"data": [1]})[1]) == [50]
seen("a change, and one that fails and leaves what was there")

# Keys.
old = keys
endpoints.begin_regenerate_keys("houses", key_type="primary").result()
keys = endpoints.get_keys("houses")
assert keys.primary_key != old.primary_key and keys.secondary_key == old.secondary_key
assert [post(uri, k, {"data": [1]})[0] for k in (keys.primary_key, keys.secondary_key, old.primary_key)] == [200, 200, 401]
endpoints.begin_regenerate_keys("houses", key_type="secondary").result()
assert [post(uri, k, {"data": [1]})[0] for k in (keys.primary_key, old.secondary_key)] == [200, 401]
seen("keys are replaced, one by one")

# Tokens, from YAML files as in the public samples.
load = load_online_endpoint(write("token.yml", "name: tokens\nauth_mode: aml_token\n"))
endpoints.begin_create_or_update(load).result()
yml = """
name: one
endpoint_name: tokens
model: azureml:weight:1
code_configuration: {code: src, scoring_script: score.py}
environment: azureml:plain:1
environment_variables: {FACTOR: 7}
instance_type: Standard_DS3_v2
instance_count: 1
"""
deployments.begin_create_or_update(load_online_deployment(write("one.yml", yml))).result()
token = endpoints.get_keys("tokens")
assert token.access_token and token.expiry_time_utc > time.time(), token
tokens = endpoints.get("tokens")
tokens.traffic = {"one": 100}
tokens = endpoints.begin_create_or_update(tokens).result()
assert json.loads(post(tokens.scoring_uri, token.access_token, {"data": [1]})[1]) == [70]
assert post(uri, token.access_token, {"data": [1]})[0] == 401
refused(ValidationException, lambda: endpoints.begin_regenerate_keys("tokens"))
seen("tokens, from files")

# The end.
e = refused(HttpResponseError, lambda: deployments.begin_delete("green", "houses").result())
assert e.status_code == 409 and "traffic" in str(e), e
deployments.begin_delete("blue", "houses").result()
assert [d.name for d in deployments.list("houses")] == ["green"]
for name in ("houses", "tokens"):
    endpoints.begin_delete(name).result()
    refused(ResourceNotFoundError, lambda: endpoints.get(name))
assert post(uri, keys.primary_key, {"data": [1]})[0] == 401
assert "houses" not in [x.name for x in endpoints.list()]
seen("refused with traffic, and deleted")
