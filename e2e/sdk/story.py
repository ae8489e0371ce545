"""What an Azure ML user does on a first day, with the unmodified SDK. Prints one line for each thing that was seen to work.

Arguments: a folder to work in. The environment is that of `berth azure-env`.
"""

import contextlib
import io
import json
import os
import pathlib
import sys
import time

import azure.ai.ml
from azure.ai.ml import Input, MLClient, Output, command
from azure.ai.ml.entities import AmlCompute, AzureBlobDatastore, Data, Environment, Model
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential

os.environ.setdefault("AZUREML_RUN_POLLING_INTERVAL_MIN", "0.2")
os.environ.setdefault("AZUREML_RUN_POLLING_INTERVAL_MAX", "0.5")

work = pathlib.Path(sys.argv[1])
work.mkdir(parents=True, exist_ok=True)
client = MLClient(
    DefaultAzureCredential(),
    os.environ["AZURE_SUBSCRIPTION_ID"],
    os.environ["AZURE_RESOURCE_GROUP"],
    os.environ["AZUREML_WORKSPACE_NAME"],
)
newer = tuple(map(int, azure.ai.ml.__version__.split(".")[:2])) >= (1, 35)


def seen(what):
    print("seen:", what, flush=True)


def write(path, text):
    path = work / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


ws = client.workspaces.get(os.environ["AZUREML_WORKSPACE_NAME"])
assert ws.name == os.environ["AZUREML_WORKSPACE_NAME"], ws
assert [c.name for c in client.compute.list()].count("local") == 1
assert client.compute.get("local").name == "local"
seen("workspace and compute")

# Assets: data of three types, an environment, a model; versions, labels, archive.
folder = work / "numbers"
for i in range(3):
    write(f"numbers/{i}.txt", str(i))
made = client.data.create_or_update(Data(name="numbers", path=str(folder), type="uri_folder"))
assert made.version == "1", made
assert made.path.endswith("/"), made.path
write("numbers/3.txt", "3")
assert client.data.create_or_update(Data(name="numbers", path=str(folder), type="uri_folder")).version == "2"
assert client.data.get("numbers", label="latest").version == "2"
assert sorted(d.version for d in client.data.list("numbers")) == ["1", "2"]
assert "numbers" in [d.name for d in client.data.list()]
client.data.archive("numbers", version="1")
assert [d.version for d in client.data.list("numbers")] == ["2"]
client.data.restore("numbers", version="1")
assert len(list(client.data.list("numbers"))) == 2
try:
    client.data.get("absent", version="1")
    raise AssertionError("an absent data asset was found")
except ResourceNotFoundError as e:
    assert "absent" in str(e), e
seen("data assets")

env = client.environments.create_or_update(Environment(name="plain", image="example/none:1", conda_file=write("conda.yml", "dependencies:\n- python\n")))
assert env.version == "1", env
assert client.environments.get("plain", label="latest").version == "1"
assert "plain" in [e.name for e in client.environments.list()]
seen("environments")

model = client.models.create_or_update(Model(name="net", path=write("net/weights.txt", "0.5"), type="custom_model"))
assert model.version == "1", model
client.models.download("net", version="1", download_path=str(work / "got"))
assert (work / "got" / "net" / "weights.txt").read_text() == "0.5", list((work / "got").rglob("*"))
seen("models")

store = client.datastores.get_default()
assert store.name == "workspaceblobstore", store
client.datastores.create_or_update(
    AzureBlobDatastore(name="elsewhere", account_name="acct", container_name="c", credentials=azure.ai.ml.entities.AccountKeyConfiguration(account_key="a2V5"))
)
assert "elsewhere" in [d.name for d in client.datastores.list()]
shown = client.datastores.get("elsewhere")
assert getattr(shown.credentials, "account_key", None) is None, "a secret came back"
# The client asks for a secret that ends: it is given a signature, and not the key that made it.
assert "&sig=" in client.datastores.get("elsewhere", include_secrets=True).credentials.sas_token
client.datastores.delete("elsewhere")
seen("datastores")

# A command job with local code, inputs of several kinds, outputs.
write(
    "code/main.py",
    """
import argparse, os, pathlib
p = argparse.ArgumentParser()
for n in ("folder", "file", "lr", "flag", "out", "one"):
    p.add_argument("--" + n)
a = p.parse_args()
print("files", sorted(f.name for f in pathlib.Path(a.folder).iterdir()), flush=True)
print("file", pathlib.Path(a.file).read_text())
print("lr", a.lr, "flag", a.flag, "env", os.environ["GREETING"], os.environ["N"], flush=True)
print("run", os.environ["AZUREML_RUN_ID"])
pathlib.Path(a.out).mkdir(parents=True, exist_ok=True)
(pathlib.Path(a.out) / "result.txt").write_text("42")
pathlib.Path(a.one).parent.mkdir(parents=True, exist_ok=True)
pathlib.Path("outputs/kept.txt").write_text("kept")
""",
)
write("code/__pycache__/junk.pyc", "junk")
write("one.csv", "a,b")


def make(**kw):
    args = dict(
        code=str(work / "code"),
        command="python main.py --folder ${{inputs.folder}} --file ${{inputs.file}} --lr ${{inputs.lr}} --flag ${{inputs.flag}}"
        " --out ${{outputs.out}} --one ${{outputs.one}}",
        inputs={
            "folder": Input(type="uri_folder", path="azureml:numbers:2"),
            "file": Input(type="uri_file", path=str(work / "one.csv"), mode="download"),
            "lr": 0.1,
            "flag": True,
        },
        outputs={"out": Output(type="uri_folder"), "one": Output(type="uri_folder", mode="upload")},
        environment_variables={"GREETING": "hi", "N": "3"},
        compute="local",
        environment="plain@latest",
        experiment_name="first-day",
        display_name="a job",
        tags={"team": "blue"},
    )
    args.update(kw)
    return command(**args)


job = client.jobs.create_or_update(make())
assert job.status in ("NotStarted", "Queued", "Preparing", "Starting", "Running", "Finalizing", "Completed"), job.status
text = io.StringIO()
with contextlib.redirect_stdout(text):
    client.jobs.stream(job.name)
job = client.jobs.get(job.name)
assert job.status == "Completed", (job.status, text.getvalue())
assert job.tags == {"team": "blue"} and job.display_name == "a job"
got = work / "download"
client.jobs.download(job.name, download_path=str(got), all=True)
files = {str(p.relative_to(got)): p for p in got.rglob("*") if p.is_file()}
assert files["named-outputs/out/result.txt"].read_text() == "42", files
assert files["artifacts/outputs/kept.txt"].read_text() == "kept", files
log = files["artifacts/user_logs/std_log.txt"].read_text()
for line in ("files ['0.txt', '1.txt', '2.txt', '3.txt']", "file a,b", "lr 0.1 flag True env hi 3", "run " + job.name):
    assert line in log, (line, log)
seen("command job: code, inputs, outputs, download")

single = work / "single"
client.jobs.download(job.name, download_path=str(single), output_name="out")
assert [p.read_text() for p in single.rglob("result.txt")] == ["42"], list(single.rglob("*"))
seen("download of one output")

# The log is streamed while the job runs.
slow = client.jobs.create_or_update(make(command="for i in 1 2 3 4; do echo tick $i; sleep 0.7; done", inputs={}, outputs={}, code=None))
text = io.StringIO()
with contextlib.redirect_stdout(text):
    client.jobs.stream(slow.name)
assert "tick 4" in text.getvalue(), text.getvalue()
seen("stream")

# A failing job raises, with the reason.
bad = client.jobs.create_or_update(make(command="echo about to fail; sleep 1; exit 3", inputs={}, outputs={}, code=None))
try:
    with contextlib.redirect_stdout(io.StringIO()):
        client.jobs.stream(bad.name)
    raise AssertionError("a failed job did not raise")
except Exception as e:
    assert "exit code 3" in str(e), e
assert client.jobs.get(bad.name).status == "Failed"
seen("failure")

# Cancel ends the whole tree.
long = client.jobs.create_or_update(make(command="sleep 600 & sleep 600", inputs={}, outputs={}, code=None))
while client.jobs.get(long.name).status != "Running":
    time.sleep(0.1)
client.jobs.begin_cancel(long.name).result()
assert client.jobs.get(long.name).status == "Canceled"
seen("cancel")

names = [j.name for j in client.jobs.list()]
assert {job.name, bad.name, long.name} <= set(names), names
client.jobs.archive(bad.name)
assert bad.name not in [j.name for j in client.jobs.list()]
client.jobs.restore(bad.name)
assert bad.name in [j.name for j in client.jobs.list()]
again = client.jobs.get(job.name)
again.tags["more"] = "1"
assert client.jobs.create_or_update(again).tags.get("more") == "1"
assert client.jobs.get(job.name).status == "Completed", "an edit ran the job again"
seen("list, archive, restore, edit")

# Same code, same id.
a = client.jobs.create_or_update(make(command="true", inputs={}, outputs={}))
b = client.jobs.create_or_update(make(command="true", inputs={}, outputs={}))
assert a.code == b.code, (a.code, b.code)
seen("code is uploaded once")

# What cannot be is refused with words.
for kw, words in (
    ({"compute": "nowhere"}, "nowhere"),
    ({"environment": "azureml:absent:7"}, "absent"),
    ({"inputs": {"folder": Input(type="uri_folder", path="azureml://datastores/nosuch/paths/x")}, "command": "ls ${{inputs.folder}}"}, "nosuch"),
):
    try:
        client.jobs.create_or_update(make(code=None, outputs={}, **({"command": "true", "inputs": {}} | kw)))
        raise AssertionError(f"{kw} was accepted")
    except HttpResponseError as e:
        assert words in str(e), e
seen("refusals")
print(json.dumps({"version": azure.ai.ml.__version__, "newer": newer, "ok": True}))
