# The open inference protocol (v2), for MLflow models

WHOLE = {f"{sign}INT{bits}": (f"{sign.lower()}int{bits}", 0 if sign else -(2 ** (bits - 1)), 2 ** (bits - (not sign)) - 1) for sign in ("", "U") for bits in (8, 16, 32, 64)}
FRACTIONS = {"FP16": "float16", "FP32": "float32", "FP64": "float64"}
COLUMNS = {"double": "FP64", "float": "FP32", "long": "INT64", "integer": "INT32", "boolean": "BOOL"}
CONTENT = {"BOOL": "true and false", "BYTES": "strings", **dict.fromkeys(WHOLE, "whole numbers"), **dict.fromkeys(FRACTIONS, "numbers")}
MANY = 50_000_000  # numbers in a tensor


class Tensor:
    """An input of a request."""

    def __init__(self, d, place):
        if not isinstance(d, dict) or not isinstance(d.get("name"), str) or not d["name"]:
            raise Refused(400, f"{place} must be an object with a name")
        self.name = d["name"]
        self.place = f"input {self.name}"
        self.shape, self.datatype, parameters = d.get("shape"), d.get("datatype"), d.get("parameters")
        if not isinstance(self.shape, list) or len(self.shape) > 32 or not all(type(n) is int and n >= 0 for n in self.shape):
            raise Refused(400, f"{self.place}: shape must be a list of whole numbers, such as [2, 3]")
        if self.datatype not in CONTENT:
            raise Refused(400, f"{self.place}: datatype must be one of {', '.join(CONTENT)}")
        if parameters is not None and not isinstance(parameters, dict):
            raise Refused(400, f"{self.place}: parameters must be an object")
        if parameters and "binary_data_size" in parameters or "data" not in d:
            raise Refused(400, f"{self.place} has no data: send it as JSON; binary tensors are not supported")
        self.base64 = self.datatype == "BYTES" and str((parameters or {}).get("content_type", "")).lower() == "base64"
        self.array = self.read(d["data"])

    def read(self, data):
        """The numbers, which are given one after the other or nested as the shape says."""
        import numpy

        count = 1
        for n in self.shape:
            count *= n
        if count > MANY:
            raise Refused(400, f"{self.place}: a shape of {count} numbers is too large; the most are {MANY}")
        flat = data if isinstance(data, list) else [data]
        if flat and isinstance(flat[0], list):
            flat = self.flatten(flat, self.shape)
        if len(flat) != count:
            raise Refused(400, f"{self.place}: data has {len(flat)} values, and the shape {self.shape} has {count}")
        kinds = {"BOOL": (bool,), "BYTES": (str,)}.get(self.datatype) or ((int,) if self.datatype in WHOLE else (int, float))
        for v in flat:
            if type(v) not in kinds:
                raise Refused(400, f"{self.place}: data of {self.datatype} must be {CONTENT[self.datatype]}, and one is {json.dumps(v)[:80]}")
        return self.typed(flat, numpy).reshape(self.shape)

    def typed(self, flat, numpy):
        if self.datatype in WHOLE:
            kind, least, most = WHOLE[self.datatype]
            if flat and not least <= min(flat) <= max(flat) <= most:
                raise Refused(400, f"{self.place}: data of {self.datatype} must be from {least} to {most}")
            return numpy.array(flat, dtype=kind)
        if self.datatype in FRACTIONS:
            try:
                wide = numpy.array(flat, dtype="float64")
            except OverflowError:
                raise Refused(400, f"{self.place}: data has a number that is too large for {self.datatype}") from None
            with numpy.errstate(over="ignore"):
                out = wide.astype(FRACTIONS[self.datatype])
            if not numpy.array_equal(numpy.isinf(out), numpy.isinf(wide)):
                raise Refused(400, f"{self.place}: data has a number that is too large for {self.datatype}")
            return out
        if self.datatype == "BOOL":
            return numpy.array(flat, dtype=bool)
        out = numpy.empty(len(flat), dtype=object)
        try:
            out[:] = [base64.b64decode(v, validate=True) for v in flat] if self.base64 else flat
        except ValueError:
            raise Refused(400, f"{self.place}: data is not base64") from None
        return out

    def flatten(self, data, shape):
        if not shape or len(data) != shape[0]:
            raise Refused(400, f"{self.place}: data is not nested as the shape {self.shape} says")
        if len(shape) == 1:
            return data
        out = []
        for part in data:
            if not isinstance(part, list):
                raise Refused(400, f"{self.place}: data is not nested as the shape {self.shape} says")
            out += self.flatten(part, shape[1:])
        return out

    def column(self):
        """Whether it can be a column of a table: one value for each row."""
        return len(self.shape) == 1 or len(self.shape) == 2 and self.shape[1] == 1


def described(spec, number, kind):
    """A column or tensor of a signature, as metadata."""
    name = getattr(spec, "name", None) or f"{kind}-{number}"
    if hasattr(spec, "shape"):
        return {"name": name, "datatype": datatype(spec.type), "shape": [int(n) for n in spec.shape]}
    t, shape = spec.type, [-1]
    while hasattr(t, "dtype") and not hasattr(t, "to_numpy"):  # a column of lists
        t, shape = t.dtype, [*shape, -1]
    return {"name": name, "datatype": COLUMNS.get(getattr(t, "name", ""), "BYTES"), "shape": shape}


def datatype(dtype):
    if dtype.kind == "b":
        return "BOOL"
    if dtype.kind in "iu" and dtype.itemsize <= 8:
        return f"{'U' if dtype.kind == 'u' else ''}INT{8 * dtype.itemsize}"
    if dtype.kind == "f":
        return f"FP{8 * min(8, dtype.itemsize)}"
    return "BYTES"


def output(name, value):
    """A prediction as a tensor: its numbers one after the other, in C's order."""
    import numpy

    if hasattr(value, "todense"):  # a sparse matrix
        value = value.todense()
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    try:
        array = numpy.asarray(value)
    except ValueError:  # lists of different lengths
        array = None
    if array is None or array.ndim == 0 and array.dtype == object:
        rows = value if isinstance(value, (list, tuple)) else [value]
        array = numpy.empty(len(rows), dtype=object)
        array[:] = rows
    array = array if array.ndim else array.reshape(1)
    kind = datatype(array.dtype)
    if kind == "BYTES":
        data = [v if v is None or isinstance(v, str) else json.dumps(v) for v in map(plain, array.ravel().tolist() if array.dtype == object else array.ravel().astype(str).tolist())]
    else:
        data = array.ravel().tolist()
        if array.dtype.kind == "f" and not numpy.isfinite(array).all():
            data = [v if numpy.isfinite(v) else None for v in data]  # JSON has no other word for it
    return {"name": name, "datatype": kind, "shape": list(array.shape), "data": data}


class Tensors:
    """Answers the paths below /v2 for an MLflow model."""

    def __init__(self, served):
        self.served, metadata = served, served.model.metadata
        at = os.environ.get("AZUREML_MODEL_DIR", "").rstrip("/").split("/")
        name, version = at[-2:] if at[-3:-2] == ["azureml-models"] else ("model", "1")
        self.names = list(dict.fromkeys(n for n in (os.environ.get("SERVICE_NAME"), name) if n))
        self.version = version
        self.inputs, self.outputs = metadata.get_input_schema(), metadata.get_output_schema()
        params = metadata.get_params_schema() if hasattr(metadata, "get_params_schema") else None
        self.params = {p.name for p in params.params} if params is not None else set()

    def respond(self, request):
        try:
            return self.route(request)
        except Refused as e:
            return self.error(e.status, e.message)
        except RecursionError:
            return self.error(400, "the body is nested too deeply")

    @staticmethod
    def error(status, text):
        return Answer(status, json.dumps({"error": text}).encode())

    @staticmethod
    def document(d):
        return Answer(200, json.dumps(d).encode())

    def route(self, request):
        words = request.path[1:].split("/")
        if words[-1] == "":
            words.pop()
        name = version = ""
        if words[1:2] == ["models"] and len(words) > 2:
            name, rest = words[2], words[3:]
            if rest[:1] == ["versions"] and len(rest) > 1:
                version, rest = rest[1], rest[2:]
            words = ["v2", "models", *rest]
            if rest not in ([], ["ready"], ["infer"]):
                words = []
        does = {
            ("v2",): ("GET", self.server), ("v2", "health", "live"): ("GET", self.healthy), ("v2", "health", "ready"): ("GET", self.healthy),
            ("v2", "repository", "index"): ("POST", self.index), ("v2", "models", "infer"): ("POST", self.infer), ("v2", "models", "ready"): ("GET", self.healthy),
        }
        if name:
            does["v2", "models"] = ("GET", self.metadata)
        else:
            does = {k: v for k, v in does.items() if k[:2] != ("v2", "models")}
        method, do = does.get(tuple(words), ("", None))
        if not do:
            raise Refused(404, f"there is no {request.path} in the open inference protocol")
        if name and name not in self.names:
            raise Refused(404, f"there is no model {name}: this is {' or '.join(self.names)}")
        if version and version != self.version:
            raise Refused(404, f"there is no version {version} of model {name}: this is {self.version}")
        if request.method != method and (request.method, method) != ("HEAD", "GET"):
            raise Refused(405, f"{request.path} is asked with {method}")
        return do(request, name) if do in (self.metadata, self.infer) else do()

    def server(self):
        name, _, version = SERVER.partition("/")
        return self.document({"name": name, "version": version, "extensions": ["model_repository"]})

    def healthy(self):
        return Answer(200, b"")

    def index(self):
        return self.document([{"name": n, "version": self.version, "state": "READY", "reason": ""} for n in self.names])

    def metadata(self, _, name):
        inputs, outputs = ([described(c, i, kind) for i, c in enumerate(s.inputs, 1)] if s is not None else [] for s, kind in ((self.inputs, "input"), (self.outputs, "output")))
        return self.document({"name": name, "versions": [self.version], "platform": "mlflow", "inputs": inputs, "outputs": outputs})

    def infer(self, request, name):
        if request.get("inference-header-content-length"):
            raise Refused(400, "binary tensors are not supported: send the data as JSON, without Inference-Header-Content-Length")
        if request.content_type() not in ("application/json", ""):
            raise Refused(400, f"the Content-Type must be application/json, and is {request.content_type()}")
        try:
            d = json.loads(request.body)
        except ValueError as e:
            raise Refused(400, f"the body is not JSON: {e}") from None
        if not isinstance(d, dict) or not isinstance(d.get("inputs"), list) or not d["inputs"]:
            raise Refused(400, "the body must be a JSON object with inputs, a list of tensors")
        if d.get("id") is not None and not isinstance(d["id"], str):
            raise Refused(400, "id must be a string")
        if d.get("parameters") is not None and not isinstance(d["parameters"], dict):
            raise Refused(400, "parameters must be an object")
        wanted = d.get("outputs") or []
        if not isinstance(wanted, list) or not all(isinstance(o, dict) and isinstance(o.get("name"), str) for o in wanted):
            raise Refused(400, "outputs must be a list of objects with a name")
        tensors = [Tensor(t, f"inputs[{i}]") for i, t in enumerate(d["inputs"])]
        if len({t.name for t in tensors}) < len(tensors):
            raise Refused(400, "two inputs have the same name")
        params = {k: v for k, v in (d.get("parameters") or {}).items() if k in self.params}
        result = self.results(self.served.predict(self.data(tensors), params))
        if wanted:
            missing = [o["name"] for o in wanted if o["name"] not in result]
            if missing:
                raise Refused(400, f"there is no output {missing[0]}: the model has {', '.join(result)}")
            result = {o["name"]: result[o["name"]] for o in wanted}
        answer = {"model_name": name, "model_version": self.version}
        if d.get("id") is not None:
            answer["id"] = d["id"]
        return self.document({**answer, "outputs": [output(n, v) for n, v in result.items()]})

    def data(self, tensors):
        """What the model is given: a table where its signature has columns, tensors where it has tensors."""
        import pandas

        first = tensors[0]
        if self.inputs is not None and not self.served.columns:
            if self.inputs.has_input_names():
                return {t.name: t.array for t in tensors}
            if len(tensors) > 1:
                raise Refused(400, f"the model has one input, and {len(tensors)} are given")
            return first.array
        if self.inputs is None:
            if len(tensors) == 1:
                return first.array
            if not all(t.column() for t in tensors):
                return {t.name: t.array for t in tensors}
        elif len(tensors) == 1 and len(first.shape) == 2 and first.name not in self.served.columns:
            if first.shape[1] != len(self.served.columns):
                raise Refused(400, f"{first.place} has {first.shape[1]} columns, and the model has {len(self.served.columns)}: {', '.join(map(str, self.served.columns))}")
            return self.served.widened(pandas.DataFrame(first.array, columns=self.served.columns))
        rows = {t.shape[0] if t.shape else 1 for t in tensors}
        if len(rows) > 1:
            raise Refused(400, "the inputs are columns of a table, and must have the same number of rows")
        return self.served.widened(pandas.DataFrame({t.name: self.cells(t) for t in tensors}))

    def cells(self, t):
        import pandas

        array = t.array.reshape(-1) if t.column() or not t.shape else t.array.tolist()
        kind = self.served.kinds.get(t.name)
        if t.datatype == "BYTES" and t.column():
            if kind == "datetime":
                try:
                    return pandas.to_datetime(pandas.Series(array)).to_numpy()
                except (ValueError, TypeError, OverflowError):
                    raise Refused(400, f"{t.place}: data must be dates and times such as 2026-01-31T12:00:00") from None
            if kind == "binary":
                return [v if isinstance(v, bytes) else v.encode() for v in array]
        return array

    def results(self, result):
        """The predictions by name."""
        import pandas

        if isinstance(result, list) and result and all(isinstance(r, dict) for r in result):
            result = pandas.DataFrame(result)
        if isinstance(result, pandas.DataFrame):
            return {str(c): result.iloc[:, i] for i, c in enumerate(result.columns)}
        if isinstance(result, dict):
            return {str(k): v for k, v in result.items()}
        names = self.outputs.input_names() if self.outputs is not None and self.outputs.has_input_names() else []
        return {names[0] if len(names) == 1 else "output-1": result}


