"""What an author of pipelines does, with the unmodified SDK. Prints one line for each thing that was seen to work.

Arguments: a folder to work in. The environment is that of `berth azure-env`.
"""

import contextlib
import io
import os
import pathlib
import sys
import time

from azure.ai.ml import Input, MLClient, Output, command, dsl, load_component
from azure.ai.ml.entities import Environment, PipelineComponent
from azure.ai.ml.exceptions import JobException
from azure.core.exceptions import HttpResponseError
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


def seen(what):
    print("seen:", what, flush=True)


def write(path, text):
    path = work / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def steps(name):
    return {c.display_name: c for c in client.jobs.list(parent_job_name=name)}


def wait(name, *statuses):
    for _ in range(600):
        job = client.jobs.get(name)
        if job.status in statuses:
            return job
        time.sleep(0.1)
    raise AssertionError(f"{name} stays {job.status}")


env = Environment(name="plain", image="example/none:1", conda_file=write("conda.yml", "dependencies:\n- python\n"))
write("src/words.sh", 'tr " " "\\n" < "$1"/text.txt | sort > "$2"/words.txt\n')
write("data/text.txt", "ship tide harbour tide\n")

# Two steps that pass a folder on; the second is a component from a file.
split = command(
    command="sh words.sh ${{inputs.text}} ${{outputs.words}} && echo split",
    code=str(work / "src"),
    environment=env,
    inputs={"text": Input(type="uri_folder")},
    outputs={"words": Output(type="uri_folder")},
)
count = load_component(
    write(
        "count.yml",
        """
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: count
version: "1"
command: >-
  PAUSE=${PAUSE:-0}; grep -c "^${{inputs.word}}$" ${{inputs.words}}/words.txt > ${{outputs.number}}/n.txt;
  sleep $PAUSE; echo $GREETING $[[${{inputs.comment}}]] ${{inputs.word}}
environment:
  image: example/none:1
  conda_file: conda.yml
inputs:
  words: {type: uri_folder}
  word: {type: string, default: ship}
  comment: {type: string, optional: true}
outputs:
  number: {type: uri_folder}
""",
    )
)


@dsl.pipeline(default_compute="local", description="how often a word is there")
def often(text: Input(type="uri_folder"), word: str = "tide"):
    words = split(text=text)
    number = count(words=words.outputs.words, word=word)
    number.environment_variables = {"GREETING": "counted", "PAUSE": "3"}  # the SDK prints no log of what is over when it looks
    return {"number": number.outputs.number}


job = client.jobs.create_or_update(often(text=Input(type="uri_folder", path=str(work / "data"))), experiment_name="pipes")
assert job.type == "pipeline" and job.status in ("NotStarted", "Queued", "Preparing", "Running"), job.status
out = io.StringIO()
with contextlib.redirect_stdout(out):
    client.jobs.stream(job.name)
told = out.getvalue()
assert "words: begins as job" in told and "words: Completed" in told and "number: begins" in told, told
job = client.jobs.get(job.name)
assert job.status == "Completed" and set(job.jobs) == {"words", "number"}, job
seen("two steps that pass a folder on, streamed")

kids = steps(job.name)
assert set(kids) == {"words", "number"} and all(k.status == "Completed" for k in kids.values()), kids
assert client.jobs.get(kids["number"].name).type == "command"
assert job.name in [j.name for j in client.jobs.list(max_results=1)], "steps hide the pipeline"
client.jobs.download(job.name, download_path=str(work / "whole"), all=True)
assert (work / "whole/named-outputs/number/n.txt").read_text() == "2\n"
assert "begins" in (work / "whole/artifacts/user_logs/std_log.txt").read_text()
client.jobs.download(kids["words"].name, download_path=str(work / "step"), output_name="words")
assert (work / "step/named-outputs/words/words.txt").read_text() == "harbour\nship\ntide\ntide\n"
client.jobs.download(kids["number"].name, download_path=str(work / "log"), all=True)
assert (work / "log/artifacts/user_logs/std_log.txt").read_text() == "counted tide\n"
assert (work / "log/named-outputs/number/n.txt").read_text() == "2\n"
seen("children, download of the whole and of steps")


# A pipeline inside a pipeline, and one made of a job.
@dsl.pipeline()
def twice(text: Input(type="uri_folder")):
    one = often(text=text, word="tide")
    two = count(words=split(text=text).outputs.words, word="ship", comment="a")
    return {"tides": one.outputs.number, "ships": two.outputs.number}


nested = twice(text=Input(type="uri_folder", path=str(work / "data")))
nested.settings.default_compute = "local"
nested = client.jobs.create_or_update(nested, experiment_name="pipes")
wait(nested.name, "Completed", "Failed")
kids = steps(nested.name)
assert client.jobs.get(kids["one"].name).type == "pipeline" and set(steps(kids["one"].name)) == {"words", "number"}, kids
client.jobs.download(nested.name, download_path=str(work / "nested"), all=True)
assert (work / "nested/named-outputs/tides/n.txt").read_text() == "2\n"
assert (work / "nested/named-outputs/ships/n.txt").read_text() == "1\n"
made = client.components.create_or_update(PipelineComponent(name="made", source_job_id=job.id))
made = client.components.get("made", version=made.version)
assert set(made.jobs) == {"words", "number"} and set(made.inputs) == {"text", "word"} and set(made.outputs) == {"number"}, made


@dsl.pipeline(default_compute="local")
def again(text: Input(type="uri_folder")):
    return {"number": made(text=text, word="harbour").outputs.number}


more = client.jobs.create_or_update(again(text=Input(type="uri_folder", path=str(work / "data"))), experiment_name="pipes")
wait(more.name, "Completed", "Failed")
client.jobs.download(more.name, download_path=str(work / "more"), output_name="number")
assert (work / "more/named-outputs/number/n.txt").read_text() == "1\n"
seen("nested pipelines, and a component made of a job")


# A step that fails, a step that is canceled.
@dsl.pipeline(default_compute="local")
def fails():
    bad = command(command="echo no good; exit 3", environment=env, outputs={"o": Output(type="uri_folder")})()
    command(command="ls ${{inputs.i}}", environment=env, inputs={"i": Input(type="uri_folder")})(i=bad.outputs.o)
    command(command="sleep 600", environment=env)()


job = client.jobs.create_or_update(fails(), experiment_name="pipes")
try:
    with contextlib.redirect_stdout(io.StringIO()):
        client.jobs.stream(job.name)
    raise AssertionError("a pipeline that failed was streamed to a good end")
except JobException as e:
    assert "exit code 3" in str(e), e
assert wait(job.name, "Failed").status == "Failed"
assert sorted(c.status for c in steps(job.name).values()) == ["Canceled", "Failed"], steps(job.name)
seen("failure")


@dsl.pipeline(default_compute="local")
def long():
    command(command="sleep 600", environment=env)()


job = client.jobs.create_or_update(long(), experiment_name="pipes")
wait(job.name, "Running")
client.jobs.begin_cancel(job.name).wait()
assert wait(job.name, "Canceled").status == "Canceled"
assert [c.status for c in steps(job.name).values()] == ["Canceled"], steps(job.name)
seen("cancel")


@dsl.pipeline(default_compute="local")
def lost(text: Input(type="uri_folder")):
    count(words=text, word="x")


for name, make, want in [
    ("compute", lambda p: setattr(p.settings, "default_compute", "nowhere"), "nowhere"),
    ("binding", lambda p: p.jobs["count"].inputs["word"].__setattr__("_data", "${{parent.jobs.gone.outputs.o}}"), "gone"),
]:
    job = lost(text=Input(type="uri_folder", path=str(work / "data")))
    try:
        make(job)
        client.jobs.create_or_update(job, experiment_name="pipes")
        raise AssertionError(f"a wrong {name} was taken")
    except Exception as e:
        assert want in str(e), (name, e)
seen("refusals")
