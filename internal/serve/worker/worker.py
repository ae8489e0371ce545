"""Berth's scoring worker: serves a scoring script (init and run) or an MLflow model over HTTP.

It speaks the contract of Azure's inference server and needs nothing but Python's standard library.
The master process listens on one port for each worker and starts the workers, which are forks of
it; a worker answers one request at a time. The first line of its output names the ports.
"""
import ast
import base64
import codecs
import contextlib
import errno
import gc
import hmac
import http.client
import importlib
import importlib.util
import inspect
import io
import json
import logging
import mmap
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import types
import urllib.parse

BOOT_FAILED = 3  # exit code where the script or model cannot be loaded
RETIRED = 75  # exit code of a worker that was not needed
MAX_HEADER = 64 << 10
MAX_BODY = 1 << 30
IDLE = 60  # seconds until a connection that nobody uses is closed
SERVER = "berth-worker/1"
IDENTIFIERS = ("x-request-id", "x-ms-request-id", "x-ms-client-request-id")
SCRIPT_ERROR = "An unexpected error occurred in scoring script. Check the logs for more info."
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")  # which Azure's server reads before the script can
# As gunicorn, which Azure's server runs in, answers where a worker ends under a request.
PAGE_500 = b"<html>\n  <head>\n    <title>Internal Server Error</title>\n  </head>\n  <body>\n    <h1><p>Internal Server Error</p></h1>\n    \n  </body>\n</html>\n"
INTERNAL_ERROR = "An unexpected internal error occurred. Check the logs for more info."
NOT_FOUND = "The requested URL was not found on the server. If you entered the URL manually please check your spelling and try again."
NOT_ALLOWED = "The method is not allowed for the requested URL."
PARQUET = "application/vnd.apache.parquet"
NUMBERS = {"double": "float64", "float": "float32", "long": "int64", "integer": "int32", "boolean": "bool"}  # types of columns
ANY = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PLAIN = (list, dict, str, int, float)  # the forms of most results
log = logging.getLogger("azmlinfsrv")
raw_http = False  # a script asked for the request as it came


class BootError(Exception):
    """The script or the model cannot be served."""


class ScoringTimeout(BaseException):
    """run took too long; not an Exception, so that scripts do not catch it by chance."""


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status, message, code="BAD_REQUEST"):
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


# Requests and answers


class Headers(dict):
    """Headers by name without regard to case, for scripts."""

    def __init__(self, pairs):
        super().__init__()
        self.pairs = pairs
        for name, value in pairs:
            dict.__setitem__(self, name.title(), value)

    def get(self, name, default=None):
        return dict.get(self, name.title(), default)

    def __getitem__(self, name):
        return dict.__getitem__(self, name.title())

    def __contains__(self, name):
        return dict.__contains__(self, str(name).title())


class Request:
    """One request that was received."""

    def __init__(self, method, target, version, pairs, fields):
        self.method, self.target = method, target
        self.pairs, self.fields = pairs, fields
        self.get = fields.get
        path, _, self.query = target.partition("?")
        self.path = urllib.parse.unquote(path) if "%" in path else path
        if self.path[:2] == "//":  # as in Azure's server
            self.path = "/" + self.path.lstrip("/")
        self.body = b""
        self.keep = version == "HTTP/1.1"
        if "connection" in fields:
            tokens = fields["connection"].lower()
            self.keep = "close" not in tokens and (self.keep or "keep-alive" in tokens)

    @property
    def headers(self):
        """The headers as scripts see them, without those between the gateway and the worker."""
        return Headers([(name, value) for name, value in self.pairs if name[:8].lower() != "x-berth-"])

    def charset(self):
        """The encoding that the Content-Type names, or nothing."""
        for part in self.get("content-type", "").split(";")[1:]:
            name, _, value = part.partition("=")
            if name.strip().lower() == "charset":
                return value.strip().strip('"').lower()
        return ""

    def content_type(self):
        return self.get("content-type", "").partition(";")[0].strip().lower()


class Answer:
    """What is sent back: a body, or parts that are sent one by one."""

    def __init__(self, status, body, content_type="application/json", headers=(), parts=None):
        self.status, self.body, self.parts = status, body, parts
        self.headers = [("Content-Type", content_type), *headers] if content_type else list(headers)


def message(status, text, headers=()):
    return Answer(status, json.dumps({"message": text}).encode(), headers=list(headers))


class Identifiers:
    """Random UUIDs. The random bytes of many are read at once."""

    def __init__(self):
        self.text = ""

    def fresh(self):
        if not self.text:
            self.text = os.urandom(4096).hex()
        t, self.text = self.text[:32], self.text[32:]
        return f"{t[:8]}-{t[8:12]}-4{t[13:16]}-{'89ab'[int(t[16], 16) & 3]}{t[17:20]}-{t[20:]}"


class PlainArgs(dict):
    def getlist(self, name):
        return self.lists.get(name, [])


class PlainRequest:
    """What a raw HTTP script gets where Flask is not installed."""

    def __init__(self, request):
        self.method, self.path, self.headers = request.method, request.path, request.headers
        self.query_string, self.data = request.query.encode(), request.body
        self.content_type = request.get("content-type")
        self.args = PlainArgs()
        self.args.lists = urllib.parse.parse_qs(request.query, keep_blank_values=True)
        self.args.update({k: v[0] for k, v in self.args.lists.items()})

    def get_data(self, as_text=False, **_):
        return self.data.decode() if as_text else self.data

    def get_json(self, **_):
        return json.loads(self.data)

    json = property(get_json)


class PlainResponse:
    """Stands for Flask's Response where that is not installed."""

    def __init__(self, response=b"", status=200, mimetype="text/html"):
        self.status_code = int(status)
        self.is_streamed = not isinstance(response, (bytes, str, bytearray))
        self.response = response if self.is_streamed else [response]
        self.pairs = [("Content-Type", mimetype + ("; charset=utf-8" if mimetype.startswith("text/") else ""))]

    def iter_encoded(self):
        for part in self.response:
            yield part.encode() if isinstance(part, str) else bytes(part)


def offer_decorators():
    """Makes the modules that raw HTTP scripts import, under both of their names, unless the fork server
    has made them."""
    if "azureml.contrib.services.aml_request" in sys.modules:
        return
    try:
        from flask import Request as Base, Response as BaseResponse
    except ImportError:
        Base, BaseResponse = PlainRequest, PlainResponse

    def rawhttp(function):
        global raw_http
        raw_http = True
        return function

    class AMLRequest(Base):
        pass

    class AMLResponse(BaseResponse):
        def __init__(self, message, status_code, response_headers={}, json_str=False, run_function_failed=False):
            if message is None or json_str:
                super().__init__(json.dumps({} if message is None else message), status=status_code, mimetype="application/json")
            else:
                super().__init__(message, status=status_code)
            pairs = list(self.headers.items()) if hasattr(self, "headers") else self.pairs
            given = {name.lower() for name in response_headers}
            pairs = [(k, v) for k, v in pairs if json_str or message is None or k.lower() != "content-type" or "content-type" not in given]
            pairs.append(("x-ms-run-function-failed", str(run_function_failed)))
            for name, value in response_headers.items():
                pairs += [(name, v.strip()) for v in value.split(",")]
            self.berth_headers = pairs

    for package in ("azureml_inference_server_http.api", "azureml.contrib.services"):
        parts = package.split(".")
        for i in range(1, len(parts) + 1):
            name = ".".join(parts[:i])
            if name not in sys.modules:
                try:
                    found = importlib.util.find_spec(name)
                except (ImportError, ValueError):
                    found = None
                if found is not None and i < len(parts):
                    __import__(name)
                    continue
                module = types.ModuleType(name)
                module.__path__ = []
                sys.modules[name] = module
                if i > 1:
                    setattr(sys.modules[".".join(parts[: i - 1])], parts[i - 1], module)
        for name, content in (("aml_request", {"AMLRequest": AMLRequest, "rawhttp": rawhttp}), ("aml_response", {"AMLResponse": AMLResponse})):
            module = types.ModuleType(package + "." + name)
            module.__dict__.update(content)
            sys.modules[package + "." + name] = module
            setattr(sys.modules[package], name, module)


# What is served: a script, or an MLflow model


class Limit:
    """How long run, or a model, may take. The timer is set when run begins and left alone when it ends: then the
    signal means nothing, and the next request sets the timer anew."""

    def __init__(self):
        self.timeout, self.runs = float(os.environ.get("SCORING_TIMEOUT_MS") or 3600 * 1000), False
        self.text = f"Scoring timeout after {self.timeout:.0f} ms"
        signal.signal(signal.SIGALRM, self.passed)

    def begin(self):
        signal.setitimer(signal.ITIMER_REAL, self.timeout / 1000)  # first, so that a signal of the last run is over
        self.runs = True

    def end(self):
        self.runs = False

    def passed(self, *_):
        if self.runs:
            raise ScoringTimeout


class Script:
    """A scoring script: a module with init and run."""

    routes = {"/score": ("GET", "POST", "OPTIONS")}

    def __init__(self, path):
        path = os.path.realpath(path)
        if not os.path.isfile(path):
            raise BootError(f"there is no scoring script {path}")
        sys.path.append(os.environ.setdefault("AML_APP_ROOT", os.path.dirname(path)))
        offer_decorators()
        spec = importlib.util.spec_from_file_location("entry_module", path)
        self.module = importlib.util.module_from_spec(spec)
        sys.modules["entry_module"] = self.module
        spec.loader.exec_module(self.module)
        driver = getattr(self.module, "driver_module", None)
        for where, name in ((self.module, "init"), (driver or self.module, "run")):
            if not callable(getattr(where, name, None)):
                raise BootError(f"the scoring script {path} has no function {name}")
        self.run = (driver or self.module).run
        self.schema = self.decorated()
        self.parameters = self.checked()
        self.first = next(iter(self.parameters))
        self.limit = Limit()

    def decorated(self):
        try:
            from inference_schema import schema_util
        except ImportError:
            return None
        if not schema_util.is_schema_decorated(self.run):
            return None
        if raw_http:
            raise BootError("run cannot be decorated with both rawhttp and input_schema")
        return schema_util

    def checked(self):
        parameters = dict(inspect.signature(self.run).parameters)
        for p in parameters.values():
            if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                raise BootError(f"run must not have the parameter {p}: only named ones can be given to it")
        self.wants_headers = parameters.pop("request_headers", None) is not None
        if not parameters:
            raise BootError("run must have a parameter for the data")
        return parameters

    @staticmethod
    def below(path):
        """The methods of a path that is not among the routes, or None."""
        return None

    def init(self):
        self.module.init()

    def respond(self, request):
        if request.method == "OPTIONS" and not raw_http:
            return Answer(200, b"", "text/html; charset=utf-8", [("x-ms-run-function-failed", "False")])
        arguments = self.arguments(request)
        begun = time.perf_counter()
        try:
            self.limit.begin()
            try:
                result = self.run(**arguments)
            finally:
                self.limit.end()
        except ScoringTimeout:
            return message(500, self.limit.text, [("x-ms-run-function-failed", "True")])
        except Exception:
            log.error("run failed: %s", traceback.format_exc())
            return message(500, SCRIPT_ERROR, [("x-ms-run-function-failed", "True")])
        took = ("x-ms-run-fn-exec-ms", f"{(time.perf_counter() - begun) * 1000:.3f}")
        if not isinstance(result, PLAIN) and hasattr(result, "iter_encoded"):
            return self.passed_on(result, took)
        try:
            body = json.dumps({} if result is None else result).encode()
        except Exception:
            log.error("run returned what is not JSON: %s", traceback.format_exc())
            return message(500, INTERNAL_ERROR, [("x-ms-run-function-failed", "False")])
        return Answer(200, body, headers=[took, ("x-ms-run-function-failed", "False")])

    @staticmethod
    def passed_on(response, took):
        pairs = getattr(response, "berth_headers", None) or getattr(response, "pairs", None) or list(response.headers.items())
        pairs = [(k, v) for k, v in pairs if k.lower() not in ("content-length", "transfer-encoding", "connection")]
        if response.status_code >= 500:
            pairs = [(k, v) for k, v in pairs if k.lower() != "x-ms-run-function-failed"] + [("x-ms-run-function-failed", "True")]
        pairs.append(took)
        if response.is_streamed:
            return Answer(response.status_code, b"", None, pairs, parts=response.iter_encoded())
        return Answer(response.status_code, b"".join(response.iter_encoded()), None, pairs)

    def arguments(self, request):
        first = self.first
        if raw_http:
            out = {first: self.raw(request)}
        elif self.schema:
            data = self.document(request)
            out = {}
            for name, p in self.parameters.items():
                if name in data:
                    out[name] = data[name]
                elif p.default is p.empty:
                    raise Refused(400, f"A value is not provided for the '{name}' parameter.")
        elif request.method == "GET":
            out = {first: json.dumps(query(request))}
        elif request.content_type() in FORMS:
            out = {first: ""}
        else:
            try:
                out = {first: request.body.decode("utf-8")}
            except UnicodeDecodeError as e:
                raise Refused(400, f"Input cannot be decoded as UTF-8: {e}") from None
        if self.wants_headers:
            out["request_headers"] = dict(request.headers)
        return out

    @staticmethod
    def document(request):
        if request.method == "GET":
            return query(request)
        kind = request.content_type()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise Refused(415, "Expects Content-Type to be application/json")
        if not request.body:
            raise Refused(400, "POST body is empty. Expecting a JSON dictionary.")
        try:
            data = json.loads(request.body)
        except ValueError as e:
            raise Refused(400, f"POST body could not be decoded as JSON: {e}") from None
        if not isinstance(data, dict):
            raise Refused(400, "POST body should be a JSON dictionary.")
        return data

    @staticmethod
    def raw(request):
        try:
            import flask
        except ImportError:
            return PlainRequest(request)
        environ = {
            "REQUEST_METHOD": request.method, "SCRIPT_NAME": "", "PATH_INFO": request.path, "QUERY_STRING": request.query,
            "SERVER_NAME": "localhost", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": request.get("content-type") or "", "CONTENT_LENGTH": str(len(request.body)),
            "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(request.body), "wsgi.errors": sys.stderr,
            "wsgi.multithread": False, "wsgi.multiprocess": True, "wsgi.run_once": False,
        }
        for name, value in request.headers.pairs:
            if name.lower() not in ("content-type", "content-length"):
                environ["HTTP_" + name.upper().replace("-", "_")] = value
        return flask.Request(environ)

    def definitions(self):
        if not self.schema:
            return None
        return self.schema.get_input_schema(self.run), self.schema.get_output_schema(self.run)


def query(request):
    """The query of a GET as a document: values are JSON where they can be, repeated keys lists."""
    out = {}
    for name, values in urllib.parse.parse_qs(request.query, keep_blank_values=True).items():
        parsed = []
        for v in values:
            try:
                parsed.append(json.loads(v))
            except ValueError:
                parsed.append(v)
        out[name] = parsed if len(parsed) > 1 else parsed[0]
    return out


class MLflow:
    """An MLflow model without a script: Azure's form on /score, MLflow's own on /invocations."""

    routes = {"/score": ("POST",), "/invocations": ("POST",), "/ping": ("GET",), "/health": ("GET",), "/version": ("GET",)}

    def __init__(self, folder):
        self.folder = folder

    def init(self):
        for at, _, files in os.walk(self.folder, followlinks=True):
            if "MLmodel" in files:
                break
        else:
            raise BootError(f"{self.folder} holds no MLmodel: it is not an MLflow model")
        import mlflow

        self.version = mlflow.__version__
        self.model = mlflow.pyfunc.load_model(os.path.realpath(at))
        schema = self.model.metadata.get_input_schema()
        self.columns = schema.input_names() if schema is not None and not schema.is_tensor_spec() else None
        self.kinds = {c.name: getattr(getattr(c, "type", None), "name", "") for c in schema.inputs} if self.columns else {}
        self.floats = {name: NUMBERS[k] for name, k in self.kinds.items() if k in ("double", "float")}
        named = schema is not None and schema.has_input_names()
        self.dtypes = {c.name: c.type for c in schema.inputs} if named and not self.columns else {}
        self.kind = None if schema is None or named or self.columns else schema.inputs[0].type
        self.tensors = Tensors(self)
        self.limit = Limit()

    def definitions(self):
        return None

    @staticmethod
    def below(path):
        return ANY if path == "/v2" or path.startswith("/v2/") else None

    def respond(self, request):
        if request.path.startswith("/v2"):
            return self.tensors.respond(request)
        if request.path in ("/ping", "/health"):
            return Answer(200, b"\n")
        if request.path == "/version":
            return Answer(200, self.version.encode(), "text/plain; charset=utf-8")
        try:
            data, params = self.read(request)
        except Refused as e:
            return self.refusal(request, e.status, e.code, e.message)
        begun = time.perf_counter()
        try:
            result = plain(self.predict(data, params))
        except Refused as e:
            return self.refusal(request, e.status, e.code, e.message)
        if request.path == "/invocations":
            return Answer(200, json.dumps({"predictions": result}).encode())
        took = ("x-ms-run-fn-exec-ms", f"{(time.perf_counter() - begun) * 1000:.3f}")
        return Answer(200, json.dumps(result).encode(), headers=[took, ("x-ms-run-function-failed", "False")])

    def predict(self, data, params):
        from mlflow.exceptions import MlflowException

        try:
            self.limit.begin()
            try:
                return self.model.predict(data, params=params) if params else self.model.predict(data)
            finally:
                self.limit.end()
        except ScoringTimeout:
            raise Refused(500, self.limit.text, "INTERNAL_ERROR") from None
        except MlflowException as e:
            raise Refused(e.get_http_status_code(), e.message, e.error_code) from None
        except Exception as e:
            log.error("the model failed: %s", traceback.format_exc())
            raise Refused(400, f"the model cannot predict this: {e}") from None

    @staticmethod
    def refusal(request, status, code, text):
        if request.path == "/invocations":
            return Answer(status, json.dumps({"error_code": code, "message": text}).encode())
        return message(status, text, [("x-ms-run-function-failed", "False")])

    def read(self, request):
        import pandas

        kind, charset = request.content_type(), request.charset()
        if kind not in ("application/json", "text/csv", PARQUET, ""):
            raise Refused(415, f"This predictor only supports the following content types: application/json, text/csv, {PARQUET}. Got '{kind}'.")
        if charset not in ("", "utf-8", "utf8"):
            raise Refused(415, f"the body must be UTF-8, and its Content-Type says {charset}")
        name = {"text/csv": "the CSV file", PARQUET: "the Parquet file"}.get(kind, "the body")
        try:
            if kind == "text/csv":
                return self.fitted(pandas.read_csv(io.BytesIO(request.body), dtype={c: str for c, kind in self.kinds.items() if kind == "string"})), None
            if kind == PARQUET:
                return self.fitted(pandas.read_parquet(io.BytesIO(request.body))), None
            try:
                d = json.loads(request.body)
            except ValueError as e:
                raise Refused(400, f"the body is not JSON: {e}") from None
            forms = ("dataframe_split", "dataframe_records", "instances", "inputs") + (("input_data",) if request.path == "/score" else ())
            given = [f for f in forms if isinstance(d, dict) and f in d]
            if len(given) != 1:
                raise Refused(400, "the body must be a JSON object with exactly one of " + ", ".join(forms))
            name, params = given[0], d.get("params")
            if params is not None and not isinstance(params, dict):
                raise Refused(400, "params must be an object")
            return self.fitted(self.frame(name, d[name])), params
        except Refused:
            raise
        except RecursionError:
            raise Refused(400, f"{name} is nested too deeply") from None
        except Exception as e:  # what readers raise depends on their version
            raise Refused(400, f"{name} cannot be read: {e}") from None

    def fitted(self, data):
        """JSON and CSV have one kind of number, and neither dates nor bytes: gives values the types of
        the model's signature where they can be of them."""
        import pandas

        if hasattr(data, "columns"):
            if self.kind is not None:
                return data.astype(self.kind)
            data = self.widened(data)
            for name in data.columns:
                kind = self.kinds.get(name)
                if kind == "datetime" and data[name].dtype.kind not in "M":
                    data[name] = pandas.to_datetime(data[name])
                elif kind == "string" and data[name].dtype.kind in "iufb":
                    data[name] = data[name].astype(str)
                elif kind in NUMBERS and not len(data):
                    data[name] = data[name].astype(NUMBERS[kind])
                elif kind == "binary":
                    data[name] = [base64.b64decode(v, validate=True) if isinstance(v, str) else v for v in data[name]]
                elif kind == "integer" and data[name].dtype == "int64" and data[name].between(-(2**31), 2**31 - 1).all():
                    data[name] = data[name].astype("int32")
            return data
        if isinstance(data, dict):
            return {k: v.astype(self.dtypes[k]) if k in self.dtypes else v for k, v in data.items()}
        return data if self.kind is None else data.astype(self.kind)

    def widened(self, data):
        """Whole numbers are fine where the model takes fractions."""
        return data.astype({c: kind for c, kind in self.floats.items() if c in data.columns and data[c].dtype.kind in "iu"})

    def frame(self, form, value):
        import numpy
        import pandas

        if form[:9] == "dataframe":
            right = dict if form == "dataframe_split" else list
            if not isinstance(value, right):
                raise ValueError("it must be " + ("an object with data" if right is dict else "a list of objects"))
        if form == "dataframe_records":
            if not all(isinstance(row, dict) for row in value):
                raise ValueError("it must be a list of objects")
            return pandas.DataFrame(value)
        split = isinstance(value, dict) and "data" in value and set(value) <= {"columns", "index", "data"}
        if form == "dataframe_split" or form == "input_data" and split:
            columns = value.get("columns") or self.columns
            return pandas.DataFrame(value["data"], columns=columns, index=value.get("index") or None)
        if isinstance(value, dict):
            return pandas.DataFrame(value if any(isinstance(v, list) for v in value.values()) else [value]) if self.columns else {k: numpy.array(v) for k, v in value.items()}
        if form == "input_data" and self.columns:
            return pandas.DataFrame(value, columns=None if value and isinstance(value[0], dict) else self.columns)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            if self.columns:
                return pandas.DataFrame(value)
            return {k: numpy.array([row[k] for row in value]) for k in value[0]}
        return numpy.array(value)


def plain(v):
    """A prediction as JSON can hold it."""
    if hasattr(v, "to_dict") and hasattr(v, "columns"):
        return [{str(k): plain(x) for k, x in row.items()} for row in v.to_dict(orient="records")]
    if hasattr(v, "to_frame") and hasattr(v, "index"):
        return plain(v.to_frame())  # as MLflow does
    if hasattr(v, "isoformat"):
        return v.isoformat()
    if hasattr(v, "tolist"):
        return plain(v.tolist()) if not isinstance(v, (list, tuple)) else v
    if isinstance(v, dict):
        return {str(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if isinstance(v, bytes):
        return v.decode("utf-8", "replace")
    return v if isinstance(v, (str, int, float, bool, type(None))) else str(v)


# The interface of a deployment, as OpenAPI


def openapi(served, version):
    name, release = os.environ.get("SERVICE_NAME") or "ML service", os.environ.get("SERVICE_VERSION") or "1.0"
    prefix = os.environ.get("SERVICE_PATH_PREFIX", "").strip("/")
    prefix = "/" + prefix if prefix else ""
    info = {"title": name, "description": "API specification for the Azure Machine Learning service " + name, "version": release}
    given = served.definitions() or ({"type": "object", "example": {}},) * 2
    kinds = {"ServiceInput": given[0], "ServiceOutput": given[1], "ErrorResponse": {"type": "object", "properties": {"message": {"type": "string"}}}}
    old = version.startswith("2")
    at = "#/definitions/" if old else "#/components/schemas/"

    def content(kind, text, example=None):
        schema = {"type": "string"} if kind == "string" else {"$ref": at + kind}
        out = {"description": text}
        if old:
            out["schema"] = schema
            if example:
                out["examples"] = {"application/json": example}
        else:
            out["content"] = {"text/plain" if kind == "string" else "application/json": {"schema": dict(schema, example=example) if example else schema}}
        return out

    failure = content("ErrorResponse", "The service failed to execute due to an error.")
    health = {
        "operationId": "ServiceHealthCheck", "description": "Simple health check endpoint to ensure the service is up at any given point.",
        "responses": {"200": content("string", "If service is up and running, this response will be returned with the content 'Healthy'", "Healthy"), "default": failure},
    }
    score = {"operationId": "RunMLService", "description": "Run web service's model and get the prediction output", "security": [{"Bearer": []}]}
    text = "The input payload for executing the real-time machine learning service."
    if old:
        score["parameters"] = [{"name": "serviceInputPayload", "in": "body", "description": text, "schema": {"$ref": at + "ServiceInput"}}]
    else:
        score["requestBody"] = content("ServiceInput", text)
    score["responses"] = {"200": content("ServiceOutput", "The service processed the input correctly and provided a result prediction, if applicable."), "default": failure}
    versions = {"type": "integer", "enum": [2, 3]}
    document = {
        "operationId": "GetSwaggerSpec", "description": "Get the Swagger specification.",
        "parameters": [{"name": "version", "in": "query", "required": False, **(versions if old else {"schema": versions})}],
        "responses": {"200": content("string", "The Swagger specification."), "default": failure},
    }
    paths = {prefix + "/": {"get": health}, prefix + "/score": {"post": score}, prefix + "/swagger.json": {"get": document}}
    scheme = {"Bearer": {"type": "apiKey", "name": "Authorization", "in": "header", "description": "For example: Bearer abc123"}}
    if old:
        return {
            "swagger": "2.0", "info": info, "schemes": ["https"], "consumes": ["application/json"], "produces": ["application/json"],
            "securityDefinitions": scheme,
            "paths": paths, "definitions": kinds,
        }
    return {
        "openapi": "3.1.0" if version == "3.1" else "3.0.3", "info": info, "security": [{"Bearer": []}],
        "paths": paths, "components": {"schemas": kinds, "securitySchemes": scheme},
    }


# One worker


class Connection:
    def __init__(self, sock):
        self.sock, self.buffer, self.used = sock, b"", time.monotonic()
        self.request = None  # whose header has been read
        self.need = 0  # bytes of its body; -1 where it comes in chunks

    def add(self, data):
        """Takes what came: as a rule a whole request, which is not copied."""
        if not self.buffer:
            self.buffer = data
            return
        if isinstance(self.buffer, bytes):
            self.buffer = bytearray(self.buffer)
        self.buffer += data

    def drop(self, n):
        """Forgets the first n bytes."""
        if n == len(self.buffer):
            self.buffer = b""
        elif isinstance(self.buffer, bytes):
            self.buffer = self.buffer[n:]
        else:
            del self.buffer[:n]


class Worker:
    """Answers requests, one at a time."""

    def __init__(self, listener, served, note):
        self.served, self.listener, self.note = served, listener, note
        self.freeze, self.retire = seconds("BERTH_FREEZE"), seconds("BERTH_FORK")
        self.secret = os.environ.pop("BERTH_REPLICA_SECRET", "").encode()
        self.origins = os.environ.get("AML_CORS_ORIGINS")
        self.identifiers = Identifiers()
        self.open = set()
        self.stopping = False
        self.wait = selectors.DefaultSelector()
        self.wait.register(listener, selectors.EVENT_READ, None)

    def serve(self):
        wake, self.wake = socket.socketpair()
        self.wake.setblocking(False)
        signal.set_wakeup_fd(self.wake.fileno(), warn_on_full_buffer=False)
        self.wait.register(wake, selectors.EVENT_READ, "wake")
        signal.signal(signal.SIGTERM, self.stop)
        swept = time.monotonic()
        while not self.stopping:
            for ready, _ in self.wait.select(self.patience()):
                if self.stopping:
                    break
                if ready.data is None:
                    self.accept()
                elif ready.data == "wake":
                    wake.recv(4096)
                else:
                    self.read(ready.data)
            if time.monotonic() - swept > IDLE:
                swept = time.monotonic()
                for c in [c for c in self.open if swept - c.used > IDLE]:
                    self.close(c)
            if not self.open and not self.stopping:
                self.rest()
        return 0

    def patience(self):
        """How long to wait for something to happen."""
        limits = [t for t in (self.freeze, self.retire) if t]
        if not limits or self.open:
            return IDLE  # the gateway closes connections that it does not use
        return min(IDLE, max(0.0, min(limits) - self.note.idle()) + 0.001)

    def rest(self):
        """Steps down where nobody has asked for long enough. There is no connection, so that no request
        can be lost: the master sees the next one come."""
        idle = self.note.idle()
        if self.retire and idle >= self.retire:
            sys.stdout.flush()
            os._exit(RETIRED)
        if self.freeze and idle >= self.freeze:
            die_with_parent(signal.SIGKILL)  # a process that is stopped would not see another signal
            os.kill(os.getpid(), signal.SIGSTOP)
            die_with_parent(signal.SIGTERM)
            self.note.touch()

    def stop(self, *_):
        self.stopping = True

    def accept(self):
        try:
            sock, _ = self.listener.accept()
        except OSError:
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        c = Connection(sock)
        self.open.add(c)
        self.wait.register(sock, selectors.EVENT_READ, c)
        self.read(c)  # as a rule the request is there already

    def close(self, c):
        if c in self.open:
            self.open.discard(c)
            self.wait.unregister(c.sock)
            c.sock.close()

    def read(self, c):
        try:
            data = c.sock.recv(64 << 10)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close(c)
            return
        c.add(data)
        c.used = time.monotonic()
        try:
            while c in self.open and self.next(c):
                pass
        except Refused as e:
            self.send(c, message(e.status, e.message), False)
            self.close(c)

    def next(self, c):
        """Answers the next request of a connection if all of it is there."""
        if c.request is None and not self.head(c):
            return False
        body = self.body(c)
        if body is None:
            return False
        request, c.request = c.request, None
        request.body = body
        asked = request.path != "/"
        if asked:
            self.note.begin()
        try:
            answer = self.answer(request)
        finally:
            if asked:
                self.note.end()
        if not self.send(c, answer, request.keep and not self.stopping, request.method == "HEAD"):
            self.close(c)
            return False
        return bool(c.buffer)

    def head(self, c):
        end = c.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(c.buffer) > MAX_HEADER:
                raise Refused(431, "the header of the request is too large")
            return False
        lines = c.buffer[:end].decode("latin-1").split("\r\n")
        c.drop(end + 4)
        first = lines[0].split(" ")
        if len(first) != 3 or not first[2].startswith("HTTP/1."):
            raise Refused(400, "this is not an HTTP request")
        pairs, fields = [], {}
        del lines[0]
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                raise Refused(400, "a header of the request cannot be read")
            value = value.strip()
            pairs.append((name, value))
            fields[name.lower()] = value
        r = c.request = Request(*first, pairs, fields)
        length = fields.get("content-length")
        if "transfer-encoding" in fields and "chunked" in fields["transfer-encoding"].lower():
            c.need, c.parts = -1, bytearray()
        elif length is not None and not length.isdigit():
            raise Refused(400, "Content-Length must be a number")
        else:
            c.need = int(length or 0)
        if c.need > MAX_BODY:
            raise Refused(413, "the body of the request is too large")
        if "expect" in fields and fields["expect"].lower() == "100-continue" and len(c.buffer) < max(c.need, 1):
            self.write(c, b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def body(self, c):
        if c.need >= 0:
            if len(c.buffer) < c.need:
                return None
            body = bytes(c.buffer if len(c.buffer) == c.need else c.buffer[: c.need])
            c.drop(c.need)
            return body
        while True:  # chunks
            end = c.buffer.find(b"\r\n")
            if end < 0:
                if len(c.buffer) > 1024:
                    raise Refused(400, "a chunk of the body cannot be read")
                return None
            try:
                size = int(bytes(c.buffer[:end]).split(b";")[0], 16)
            except ValueError:
                raise Refused(400, "a chunk of the body cannot be read") from None
            if size < 0 or len(c.parts) + size > MAX_BODY:
                raise Refused(413, "the body of the request is too large")
            if size == 0:
                tail = c.buffer.find(b"\r\n\r\n", end)
                if tail < 0:
                    return None
                c.drop(tail + 4)
                return bytes(c.parts)
            if len(c.buffer) < end + 2 + size + 2:
                return None
            c.parts += c.buffer[end + 2 : end + 2 + size]
            c.drop(end + 2 + size + 2)

    def answer(self, request):
        """The answer to a request, with the headers that all have."""
        if request.path == "/" and request.method in ("GET", "HEAD"):
            proof, nonce = [], request.get("x-berth-nonce")
            if nonce and self.secret:
                proof = [("X-Berth-Proof", hmac.new(self.secret, nonce.encode("latin-1"), "sha256").hexdigest())]
            return self.identify(request, Answer(200, b"Healthy", "text/html; charset=utf-8", proof))
        if self.secret and not hmac.compare_digest(request.get("x-berth-replica", "").encode("latin-1"), self.secret):
            return message(403, "this is a replica of an online endpoint: call the endpoint")
        if request.path in ("/", "/swagger.json") and request.method == "OPTIONS":
            return self.identify(request, Answer(200, b"", "text/html; charset=utf-8", [("Allow", "GET, HEAD, OPTIONS")]))
        failed = [("x-ms-run-function-failed", "False")]
        swagger = request.path == "/swagger.json" and request.method in ("GET", "HEAD")
        methods = ("GET", "HEAD") if swagger else self.served.routes.get(request.path)
        if methods is None:
            methods = self.served.below(request.path)
        if methods is None and request.path not in ("/", "/swagger.json"):
            return message(404, NOT_FOUND, failed)
        if methods is None or request.method not in methods:
            refusal = message(405, NOT_ALLOWED, failed)
            return self.identify(request, refusal) if request.method == "HEAD" and methods and "GET" in methods else refusal
        long = [n for n in IDENTIFIERS if n in request.fields and len(request.fields[n]) > 100]
        if long:
            own = long[0] == "x-request-id"
            names = "x-request-id" if own else "x-ms-request-id and x-ms-client-request-id"
            given = [] if own else [("x-request-id", request.get("x-request-id") or self.identifiers.fresh())]
            return message(431, names + " must not exceed 100 characters", failed + given + [("x-ms-server-version", SERVER)])
        try:
            answer = self.swagger(request, failed) if swagger else self.served.respond(request)
        except Refused as e:
            answer = message(e.status, e.message, failed)
        except (SystemExit, KeyboardInterrupt):
            log.error("run ended the program: %s", traceback.format_exc())
            return Answer(500, PAGE_500, "text/html")
        except Exception:
            log.error("the request failed: %s", traceback.format_exc())
            answer = message(500, INTERNAL_ERROR, failed)
        return self.identify(request, answer)

    def identify(self, request, answer):
        get = request.get
        client = get("x-ms-client-request-id") or get("x-ms-request-id")
        fresh = get("x-request-id") or self.identifiers.fresh()
        answer.headers += [("x-ms-server-version", SERVER), ("x-request-id", fresh), ("x-ms-request-id", get("x-ms-request-id") or client or fresh)]
        if client:
            answer.headers.append(("x-ms-client-request-id", client))
        if get("traceid"):
            answer.headers.append(("TraceId", get("traceid")))
        if self.origins:
            asked = get("origin") or ""
            allowed = [o.strip() for o in self.origins.split(",")]
            if "*" in allowed or not asked or asked in allowed:
                answer.headers += [("Access-Control-Allow-Origin", asked or allowed[0]), ("Access-Control-Allow-Methods", "GET, POST"), ("Vary", "Origin")]
        return answer

    def swagger(self, request, failed):
        version = str(query(request).get("version", "2"))
        if version not in ("2", "3", "3.1"):
            return message(404, f"Swagger version [{version}] is not valid. Supported versions: [2, 3, 3.1].", failed)
        root = os.environ.get("AML_APP_ROOT") or "."
        for name in (("swagger.json",) if version == "2" else ()) + ("swagger" + version + ".json",):
            try:
                with open(os.path.join(root, name), "rb") as f:
                    return Answer(200, json.dumps(json.load(f)).encode(), headers=list(failed))
            except FileNotFoundError:
                pass
        return Answer(200, json.dumps(openapi(self.served, {"2": "2.0", "3": "3.0"}.get(version, version))).encode(), headers=list(failed))

    def send(self, c, answer, keep, bare=False):
        """Sends an answer; False where the connection is of no more use."""
        head = [f"HTTP/1.1 {answer.status} {http.client.responses.get(answer.status, 'Unknown')}"]
        head += [f"{name}: {value}" for name, value in answer.headers]
        whole = "".join(head)
        if "\n" in whole or "\r" in whole:
            head = [line.translate({10: " ", 13: " "}) for line in head]
        if answer.parts is None:
            head.append(f"Content-Length: {len(answer.body)}")
        else:
            head.append("Transfer-Encoding: chunked")
        if not keep:
            head.append("Connection: close")
        text = ("\r\n".join(head) + "\r\n\r\n").encode("latin-1", "replace")
        try:
            if answer.parts is None:
                self.write(c, text if bare else text + answer.body)
                return keep
            self.write(c, text)
            for part in answer.parts:
                if part:
                    self.write(c, b"%x\r\n%b\r\n" % (len(part), part))
            self.write(c, b"0\r\n\r\n")
            return keep
        except OSError:
            return False
        except Exception:
            log.error("the answer broke off: %s", traceback.format_exc())
            return False

    def write(self, c, data):
        try:
            sent = c.sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            return
        data = memoryview(data)[sent:]
        c.sock.settimeout(IDLE)
        try:
            c.sock.sendall(data)
        finally:
            c.sock.setblocking(False)


# The processes


def set_up_logging():
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BufferedWriter(Lenient(fd)), "utf-8", "replace", line_buffering=True) for fd in (1, 2))
    class Format(logging.Formatter):
        converter = time.gmtime

        def format(self, record):
            record.letter = record.levelname[:1]
            return super().format(record)

    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(Format("%(asctime)s %(letter)s [%(process)d] %(name)s - %(message)s"))
    level = logging.getLevelName((os.environ.get("AZUREML_LOG_LEVEL") or "INFO").upper())
    logging.basicConfig(handlers=[handler], level=level if isinstance(level, int) else logging.INFO)


def show_folder(root, most=40):
    """Lists the model folder in the log, which helps when init does not find a file."""
    lines = []
    for at, _, files in os.walk(root, followlinks=True):
        lines += [os.path.join(at, f) for f in files]
        if len(lines) > most:
            break
    log.error("AZUREML_MODEL_DIR %s holds:\n  %s", root, "\n  ".join(lines[:most]) or "(nothing)")
