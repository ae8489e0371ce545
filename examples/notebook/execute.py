"""Executes a notebook on a compute instance, through the server's proxy, as JupyterLab in a browser does.

    python execute.py INSTANCE NOTEBOOK [RESULT]

needs the packages requests and websocket-client; where the server is and the token come from `berth azure-env`.
"""

import datetime
import json
import os
import pathlib
import ssl
import subprocess
import sys
import uuid

import requests
import websocket

name, notebook = sys.argv[1], pathlib.Path(sys.argv[2])
result = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else notebook.with_suffix(".out.ipynb")
berth = json.loads(subprocess.check_output([os.environ.get("BERTH", "berth"), "azure-env", "-o", "json"]))
token = {"Authorization": "Bearer " + berth["token"]}
http = requests.Session()
http.trust_env = False  # no proxy, and the server's own certificate authority
http.verify = berth["ca_bundle"]
http.headers.update(token)

compute = http.get(
    "{}/subscriptions/{subscription_id}/resourceGroups/{resource_group}/providers/Microsoft.MachineLearningServices"
    "/workspaces/{workspace_name}/computes/{name}".format(berth["metadata_url"].split("/metadata/")[0], name=name, **berth),
    params={"api-version": "2024-04-01"},
)
compute.raise_for_status()
apps = {a["displayName"]: a["endpointUri"] for a in compute.json()["properties"]["properties"]["applications"]}
base = apps["JupyterLab"].removesuffix("/lab")

book = json.loads(notebook.read_text())
http.put(f"{base}/api/contents/{notebook.name}", json={"type": "notebook", "format": "json", "content": book}).raise_for_status()
session = http.post(f"{base}/api/sessions", json={"path": notebook.name, "type": "notebook", "name": notebook.name, "kernel": {"name": "python3"}})
session.raise_for_status()
session = session.json()

channel = websocket.create_connection(
    base.replace("https:", "wss:") + f"/api/kernels/{session['kernel']['id']}/channels?session_id={uuid.uuid4().hex}",
    header=token,
    sslopt={"ca_certs": berth["ca_bundle"], "cert_reqs": ssl.CERT_REQUIRED},
)


def execute(code):
    """Runs code in the kernel and returns the outputs of its cell."""
    ident = uuid.uuid4().hex
    channel.send(json.dumps({
        "channel": "shell", "content": {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False},
        "header": {"msg_id": ident, "msg_type": "execute_request", "session": ident, "username": "", "version": "5.3", "date": datetime.datetime.now(datetime.timezone.utc).isoformat()},
        "parent_header": {}, "metadata": {}, "buffers": [],
    }))
    outputs = []
    while True:
        message = json.loads(channel.recv())
        if message["parent_header"].get("msg_id") != ident:
            continue
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "stream":
            outputs.append({"output_type": "stream", "name": content["name"], "text": content["text"]})
            print(content["text"], end="")
        elif kind == "execute_result":
            outputs.append({"output_type": kind, "data": content["data"], "metadata": content["metadata"], "execution_count": content["execution_count"]})
            print(content["data"].get("text/plain", ""))
        elif kind == "error":
            sys.exit("\n".join(content["traceback"]))
        elif kind == "status" and content["execution_state"] == "idle":
            return outputs


count = 0
for cell in book["cells"]:
    if cell["cell_type"] == "code":
        count += 1
        cell["outputs"], cell["execution_count"] = execute("".join(cell["source"])), count
channel.close()
http.put(f"{base}/api/contents/{notebook.name}", json={"type": "notebook", "format": "json", "content": book}).raise_for_status()
http.delete(f"{base}/api/sessions/{session['id']}").raise_for_status()
result.write_text(json.dumps(book, indent=1))
print(f"executed {count} cells of {notebook.name} on {name}; the result is {result}")
