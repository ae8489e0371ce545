"""Records what azureml-inference-server-http answers, for TestContract.

    unshare -n sh -c 'ip link set lo up; exec PYTHON record.py'

PYTHON is one that has the package, numpy, pandas and inference-schema. It writes plain.more.json, raw.more.json,
headers.more.json and schema.more.json, and needs a network namespace because that server listens on all addresses.
Names of cases may be given to record only those.
"""
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time

KEPT = ["content-type", "x-ms-run-function-failed", "x-ms-request-id", "x-ms-client-request-id", "x-request-id", "traceid", "retry-after", "x-a", "x-ms-run-fn-exec-ms", "x-ms-server-version", "allow"]
JSON = {"Content-Type": "application/json"}
GUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def plain():
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        for path in ("/", "/score", "/nothing", "/score/", "/score/more", "/docs"):
            yield method, path, None if method == "GET" else '{"k": "dict"}', {} if method == "GET" else JSON
    for body in (
        "0", "-0", "1e3", "1E-7", "1.0", "12345678901234567890123", "0.1", "true", "false", "null", '""', '"a\\"b"', '"\\u00e9"', '"\\ud83d\\ude00"', "[]", "[[[]]]", "{}", '{"": 1}',
        ' {"a" : 1 } ', '\n[1,\n2]\n', '{"a": 1, "a": 2}', "NaN", "Infinity", "-Infinity", "[1, 2", "{'a': 1}", "[1,]", "undefined", "01", "\ufeff[]", '{"k": "none"}', '{"k": "tuple"}',
        '{"k": "set"}', '{"k": "generator"}', '{"k": "length", "x": "' + "y" * 10_000 + '"}', '{"k": "unicode"}', '{"k": "type"}', '{"k": "stop"}', '["\u00e9", "\u2211"]',
    ):
        yield "POST", "/score", body, JSON
    for kind in ("text/plain", "application/json; charset=utf-8", "APPLICATION/JSON", "text/csv", "application/octet-stream", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense", ""):
        yield "POST", "/score", '{"k": "dict"}', {"Content-Type": kind}
    for query in (
        "a=1", "a=1&a=2", "a=%5B1%2C2%5D", "a=text", "a=", "a", "", "a=1&b=2", "a=true", "a=null", "a=1.5", "a=%7B%22b%22%3A1%7D", "a=%C3%A9", "a=x+y", "a=x%20y", "k=dict", "k=none", "k=raise", "a=%22q%22", "a=1&a=x",
    ):
        yield "GET", "/score?" + query, None, {}
    for name in ("x-request-id", "x-ms-request-id", "x-ms-client-request-id"):
        for n in (1, 99, 100, 101, 200):
            yield "POST", "/score", '{"k": "num"}', dict(JSON, **{name: "i" * n})
    for headers in ({"TraceId": "t"}, {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {"x-request-id": "a b"}, {"X-MS-CLIENT-REQUEST-ID": "Upper"}):
        yield "POST", "/score", '{"k": "num"}', dict(JSON, **headers)
    for query in ("?version=2", "?version=4", "?version=", "?version=two"):
        yield "GET", "/nothing" + query, None, {}
    for method in ("HEAD", "OPTIONS", "POST", "PUT", "TRACE"):
        for path in ("/", "/score", "/swagger.json", "/nothing"):
            yield method, path, '{"k": "dict"}' if method in ("POST", "PUT") else None, JSON
    for path in ("//score", "///score", "//", "//swagger.json", "/score//", "/score/..", "/./score", "/Score", "/score;x", "/%73core", "/score%20", "/score#x", "/score?"):
        yield "POST" if "score" in path else "GET", path, '{"k": "dict"}' if "score" in path else None, JSON


def raw():
    for method in ("GET", "POST", "OPTIONS"):
        for q in ("teapot", "400", "500", "503", "none", "empty", "failed", "raise", "nothing"):
            yield method, "/score?q=" + q, None if method == "GET" else "body", {} if method == "GET" else {"Content-Type": "text/plain"}
    for body in ('{"x": [1, 2]}', '{"x": []}', '{"x": [0.5]}', '{"y": 1}', "no"):
        yield "POST", "/score?q=json", body, JSON
    for query in ("v=1", "v=1&v=2", "v=", "w=1", "v=a%26b", "v=%C3%A9"):
        yield "GET", "/score?q=list&" + query, None, {}
    yield "GET", "/score?q=headers", None, {"X-Test": "Yes"}
    yield "DELETE", "/score", "x", {}
    yield "POST", "/elsewhere", "x", {}


def headers():
    for value in ("Yes", "", "a, b", "a;b=c", "x" * 1000):
        yield "POST", "/score", "body", {"X-Test": value}
    for body in ("", "{}", "\u00e9"):
        yield "POST", "/score", body, {"x-tEST": "case"}
    yield "GET", "/score?data=1", None, {"X-Test": "get"}


def schema():
    for body in (
        '{"rows": [[1, 2]]}', '{"rows": [[1, 2], [3, 4]]}', '{"rows": [[1.5, 2]], "mode": "max"}', '{"rows": [[1, 2]], "other": 1}', '{"rows": [[1, 2]], "factor": 3}',
        '{"rows": [[1, 2]], "table": [{"age": 3, "name": "Bo"}, {"age": 4, "name": "Cy"}]}', '{"rows": [[1, 2]], "table": {"columns": ["age", "name"], "data": [[5, "Di"]]}}',
        '{"rows": [[1, 2]], "table": null}', '{"rows": [[1, 2]], "table": [{"age": "old", "name": "Ed"}]}', '{"rows": [[1, 2]], "factor": "x"}', '{"rows": [[1, 2]], "mode": 1}',
        '{"rows": []}', '{"rows": [1, 2]}', '{"rows": [[1, 2, 3]]}', '{"rows": [[1], [2, 3]]}', '{"rows": "text"}', '{"rows": null}', '{"rows": {"a": 1}}', '{"rows": [["a", "b"]]}',
        "{}", '{"table": []}', "[]", "[[1, 2]]", '"text"', "1", "null", "true", "", " ", "{", "nothing", '{"rows": [[NaN, 1]]}', '{"rows": [[1, 2]], "mode": "raise"}',
    ):
        yield "POST", "/score", body, JSON
    for kind in ("text/plain", "application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.api+json", "text/csv", "application/x-www-form-urlencoded", ""):
        yield "POST", "/score", '{"rows": [[1, 2]]}', {"Content-Type": kind}
    yield "POST", "/score", '{"rows": [[1, 2]]}', {}
    yield "POST", "/score", '{"rows": [[1, 2]]}', dict(JSON, **{"X-Test": "seen"})
    for query in ("rows=[[1,2]]", "rows=[[1,2]]&mode=max", "rows=[[1,2]]&rows=[[3,4]]", "rows=1", "rows=", "", "mode=max", "rows=[[1,2]]&factor=4"):
        yield "GET", "/score?" + query, None, {}
    yield "OPTIONS", "/score", None, {}
    for version in ("", "?version=2", "?version=3", "?version=3.1", "?version=1"):
        yield "GET", "/swagger.json" + version, None, {}


def ask(port, method, path, body, sent):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    c.request(method, path, body=body.encode() if body is not None else None, headers=sent)
    r = c.getresponse()
    answer = r.read()
    got = {}
    for name in KEPT:
        value = ", ".join(r.headers.get_all(name) or [])
        if name == "allow":  # in any order
            value = ", ".join(sorted(value.split(", ")))
        if GUID.match(value):
            value = "GUID"
        if name in ("x-ms-run-fn-exec-ms", "x-ms-server-version") and value:
            value = "ANY"
        if value:
            got[name] = value
    return {"method": method, "path": path, "body": body, "headers": sent, "status": r.status, "answerHeaders": got, "answer": answer.decode("latin-1")}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    for i, cases in enumerate((plain, raw, headers, schema)):
        name, port = cases.__name__, 15200 + i
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        home = tempfile.mkdtemp()
        script = os.path.join(here, name + ".py")
        server = subprocess.Popen(
            [os.path.join(os.path.dirname(sys.executable), "azmlinfsrv"), "--entry_script", script, "--port", str(port), "--health_port", str(port)],
            env=dict(os.environ, HOME=home), cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(600):
                try:
                    ask(port, "GET", "/", None, {})
                    break
                except OSError:
                    time.sleep(0.1)
            out = [ask(port, *case) for case in cases()]
        finally:
            server.terminate()
            server.wait()
        with open(os.path.join(here, name + ".more.json"), "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(x) for x in out) + "\n]\n")
        print(name, len(out))


if __name__ == "__main__":
    main()
