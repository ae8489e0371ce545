"""Berth's worker of jobs with mini-batches: steps of type parallel, and batch deployments.

One process of it runs on each node of such a job. It asks the server for mini-batches, gives each to
one of several processes, which have called the script's init and call its run, and tells the server
what became of it, with the rows that run returned. It needs Python 3.9 and no other packages.
"""
import collections
import csv
import http.client
import importlib.util
import inspect
import json
import os
import selectors
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse

PATIENCE = 600  # seconds that the server may be away
BLOCK = 1 << 20
SHORT = 1.0  # seconds; nodes fetch mini-batches that take less than this ahead of time
PAUSE = 1.0  # seconds before the server is asked again that had no mini-batches
SHUTDOWN_TIME = 60  # seconds for shutdown()
PLAN_SIZE = 1 << 20  # bytes of names that are sent at once
TABLE_SIZE = 1 << 20  # bytes of rows of a mini-batch, where the job does not say
ERROR_SIZE = 2000  # characters of an error that are sent
LOG_TIME = 5  # seconds to copy what ended processes have printed


class Trouble(Exception):
    """The task cannot go on."""


class NotWriter(Trouble):
    """Another task is to write the result, since mini-batches are done again."""


def say(text):
    print(time.strftime("%Y-%m-%d %H:%M:%S ", time.gmtime()) + text, flush=True)


# The processes that call the script


class Context:
    """The second argument of run, where it takes one."""

    def __init__(self, number, items, keys=None):
        self.minibatch_index = str(number)
        self.mini_batch_id = number
        self.minibatch_size = len(items)
        self.partition_key_value = keys
        self.dataset = None


class Script:
    """A scoring script with init and run."""

    def __init__(self, how):
        path = os.path.join(os.getcwd(), how["script"])
        if not os.path.isfile(path):
            raise Trouble(f"the code has no file {how['script']}")
        sys.path[:0] = [os.path.dirname(path), os.getcwd()]
        sys.argv = [path] + shlex.split(how.get("args") or "")
        spec = importlib.util.spec_from_file_location("entry_module", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["entry_module"] = module
        spec.loader.exec_module(module)
        self.run = getattr(module, "run", None)
        if not callable(self.run):
            raise Trouble(f"{how['script']} has no function run(mini_batch)")
        takes = [p for p in inspect.signature(self.run).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.context = len(takes) > 1
        self.shutdown = getattr(module, "shutdown", None)
        init = getattr(module, "init", None)
        if callable(init):
            init()

    def call(self, number, items, out, keys=None):
        result = self.run(items, Context(number, items, keys)) if self.context else self.run(items)
        if result is None:
            raise TypeError("run returned None: it must return a list or a DataFrame with a result for each item")
        return write_rows(result, out)


def write_rows(result, out):
    """Writes what run returned as CSV, and counts it."""
    with open(out, "w", newline="", encoding="utf-8") as f:
        if hasattr(result, "to_csv"):
            result.to_csv(f, header=False, index=False)
            return len(result)
        if isinstance(result, (str, bytes, dict)) or not hasattr(result, "__iter__"):
            raise TypeError(f"run returned a {type(result).__name__}: it must return a list or a DataFrame with a result for each item")
        result = list(result)
        csv.writer(f, lineterminator="\n").writerows(map(columns, result))
    return len(result)


def columns(element):
    if hasattr(element, "tolist"):
        element = element.tolist()
    if isinstance(element, (list, tuple)):
        return [cell(x) for x in element]
    return [cell(element)]


def cell(value):
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, default=str)
    return value


class Model:
    """An MLflow model, which needs no script: each file is predicted as a whole."""

    shutdown = None

    def __init__(self):
        root = os.environ.get("AZUREML_MODEL_DIR") or "."
        for at, _, files in os.walk(root, followlinks=True):
            if "MLmodel" in files:
                break
        else:
            raise Trouble(f"{root} holds no MLmodel: it is not an MLflow model")
        try:
            import mlflow.pyfunc
        except ImportError as e:
            raise Trouble(f"the environment of the deployment has no mlflow, which loads the model: {e}") from None
        self.model = mlflow.pyfunc.load_model(os.path.realpath(at))
        schema = self.model.metadata.get_input_schema()
        self.columns, self.floats = None, {}
        if schema is not None and not schema.is_tensor_spec():
            self.columns = schema.input_names()
            for c in schema.inputs:
                kind = getattr(getattr(c, "type", None), "name", "")
                if kind in ("double", "float"):
                    self.floats[c.name] = {"double": "float64", "float": "float32"}[kind]

    def call(self, number, paths, out):
        good, last = 0, None
        with open(out, "w", newline="", encoding="utf-8") as f:
            w = csv.writer(f, lineterminator="\n")
            for path in paths:
                name = os.path.basename(path)
                try:
                    rows = self.predict(path)
                except Exception as e:
                    last = e
                    say(f"{name} failed: {e}")
                    traceback.print_exc()
                    continue
                w.writerows((name, cell(row)) for row in rows)
                good += 1
        if good == 0 and last is not None:
            raise last
        return good

    def predict(self, path):
        import pandas

        kind = os.path.splitext(path)[1].lower()
        if kind in (".csv", ".txt"):
            data = pandas.read_csv(path)
        elif kind in (".parquet", ".pqt"):
            data = pandas.read_parquet(path)
        elif kind in (".json", ".jsonl"):
            data = pandas.read_json(path, lines=kind == ".jsonl")
        elif kind in (".png", ".jpg", ".jpeg", ".tiff", ".bmp", ".gif"):
            import numpy
            from PIL import Image

            return listed(self.model.predict(numpy.array(Image.open(path))[None]))
        else:
            raise ValueError(f"files that end in {kind or 'nothing'} cannot be given to an MLflow model: use .csv, .parquet, .json, .jsonl or images")
        if self.columns and all(c in data.columns for c in self.columns):
            data = data[self.columns]
            for name, kind in self.floats.items():
                if data[name].dtype.kind in "iu":
                    data = data.astype({name: kind})
        return listed(self.model.predict(data))


def listed(result):
    if hasattr(result, "columns"):
        return result.iloc[:, 0].tolist() if len(result.columns) == 1 else result.to_dict("records")
    if hasattr(result, "tolist"):
        result = result.tolist()
    return result if isinstance(result, list) else list(result)


def worker(read, write):
    """Is one of the processes: calls run for each mini-batch that comes on a pipe."""
    try:  # end with whoever started it
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except Exception:
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the one who started it decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    how = json.loads(os.environ.pop("BERTH_PARALLEL"))
    asks, answers = os.fdopen(read, encoding="utf-8"), os.fdopen(write, "w", encoding="utf-8")

    def answer(**what):
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    try:
        served = Script(how) if how.get("script") else Model()
        table = Table(how["root"], how["form"], how.get("keys")) if how.get("form") else None
    except Trouble as e:
        answer(failed=str(e))
        return 1
    except BaseException as e:
        traceback.print_exc()
        answer(failed=f"init failed: {type(e).__name__}: {e}")
        return 1
    answer(ready=True)
    for line in asks:
        ask = json.loads(line)
        begun = time.monotonic()
        try:
            if table is not None:
                items, keys = table.frame(ask["part"])
                returned = served.call(ask["number"], items, ask["out"], keys)
            else:
                returned = served.call(ask["number"], ask["paths"], ask["out"])
            answer(number=ask["number"], returned=returned, took=time.monotonic() - begun)
        except BaseException as e:
            traceback.print_exc()
            answer(number=ask["number"], error=f"{type(e).__name__}: {e}", took=time.monotonic() - begun)
            if not isinstance(e, Exception):
                return 1
    if callable(served.shutdown):
        served.shutdown()
    return 0


# The process that starts them


class Server:
    """Talks to the server, which may be away for a while."""

    def __init__(self, how):
        url = urllib.parse.urlsplit(how["url"])
        self.path, self.token = url.path, how["token"]
        ca = os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH")
        if url.scheme == "https":
            context = ssl.create_default_context(cafile=ca or None)
            self.open = lambda: http.client.HTTPSConnection(url.hostname, url.port, timeout=120, context=context)
        else:
            self.open = lambda: http.client.HTTPConnection(url.hostname, url.port, timeout=120)
        self.connection = None

    def request(self, method, path, body=None, files=(), use=None):
        """Sends a question, again and again until it is answered. The files follow the body."""
        wait, until, told = 0.1, time.monotonic() + PATIENCE, False
        while True:
            try:
                return self.once(method, path, body, files, use)
            except (OSError, http.client.HTTPException) as e:
                if self.connection is not None:
                    self.connection.close()
                self.connection = None
                if time.monotonic() > until:
                    raise Trouble(f"the server did not take the results for {PATIENCE} seconds: {e}") from None
                if wait > 1 and not told:
                    say(f"the server does not answer, trying on: {e}")
                    told = True
            time.sleep(wait)
            wait = min(2 * wait, 5)

    def once(self, method, path, body, files, use):
        if self.connection is None:
            self.connection = self.open()
        headers = {"Authorization": "Bearer " + self.token}
        data = None
        if body is not None:
            sizes = [os.path.getsize(f) for f in files]
            headers["Content-Length"] = str(len(body) + sum(sizes))
            data = blocks(body, files)
        self.connection.request(method, self.path + path, body=data, headers=headers)
        r = self.connection.getresponse()
        if r.status == 200:
            return use(r) if use else json.loads(r.read())
        text = r.read(10000).decode("utf-8", "replace")
        try:
            text = json.loads(text)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            pass
        if r.status in (408, 429) or r.status >= 500:
            raise OSError(f"{r.status}: {text}")
        if r.status == 409:
            raise NotWriter(text)
        raise Trouble(f"the server says: {text}")


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def blocks(body, files):
    yield body
    for name in files:
        with open(name, "rb") as f:
            while block := f.read(BLOCK):
                yield block


class Worker:
    """One of the processes, seen from outside."""

    def __init__(self, node, index):
        self.node, self.index = node, index
        self.start()

    def start(self):
        self.ready, self.piece, self.rest = False, None, b""
        ask, self.asks = os.pipe()
        self.answers, answer = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, self.node.program, "worker", str(ask), str(answer)], pass_fds=(ask, answer), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.node.environment,
        )
        os.close(ask)
        os.close(answer)
        copier = threading.Thread(target=self.copy, args=(self.process.stdout,), daemon=True)
        self.node.copiers = [c for c in self.node.copiers if c.is_alive()] + [copier]
        copier.start()

    def copy(self, stream):
        """Copies what the process prints to its own log and to the task's."""
        os.makedirs(self.node.logs, exist_ok=True)
        try:
            with open(os.path.join(self.node.logs, f"process{self.index:03}.stdout.txt"), "ab", 0) as f:
                for line in stream:
                    f.write(line)
                    if len(self.node.workers) > 1:
                        line = f"[process{self.index:03}] ".encode() + line
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()
        except OSError as e:
            say(f"the output of process {self.index} is lost: {e}")

    def give(self, piece):
        self.piece, self.since = piece, time.monotonic()
        self.out = os.path.join(self.node.folder, f"{piece['number']}-{piece['try']}.csv")
        ask = {"number": piece["number"], "out": self.out}
        if self.node.form:
            ask["part"] = json.loads(piece["items"][0])
        else:
            ask["paths"] = [os.path.join(self.node.root, item) if item else self.node.root for item in piece["items"]]
        try:
            os.write(self.asks, (json.dumps(ask) + "\n").encode())
        except OSError:
            pass  # it is gone, which its other pipe will tell

    def end(self, kill=False):
        if kill:
            self.process.kill()
        for fd in (self.asks, self.answers):
            os.close(fd)
        code = self.process.wait()
        return f"the process was ended by {signal.Signals(-code).name}" if code < 0 else f"the process ended with exit code {code}"


class Node:
    """The task on this node."""

    def __init__(self, how, source):
        self.how, self.server = how, Server(how)
        at = os.environ.get("BERTH_TASK_DIR")  # goes with the task
        self.folder = tempfile.mkdtemp(prefix="berth-parallel-", dir=at if at and os.access(at, os.W_OK) else None)
        self.program = os.path.join(self.folder, "berth_parallel.py")
        with open(self.program, "w", encoding="utf-8") as f:
            f.write(source)
        self.root = os.environ["AZURE_ML_INPUT_" + how["input"]]
        self.logs = os.path.join("logs", "user", "stdout", "node-" + how["task"])
        self.output = os.environ.get("AZURE_ML_OUTPUT_" + how["output"]) if how.get("output") else None
        if self.output:
            os.environ["AZUREML_BI_OUTPUT_PATH"] = self.output
            if how.get("file"):
                os.makedirs(self.output, exist_ok=True)
        place_model(how.get("model", ""), self.folder)
        # A table's rows are cut; a table that is a selection of files is cut by files.
        form = os.environ.get("BERTH_TABLE_" + how["input"]) if how.get("table") else None
        self.form = json.loads(form) if form else None
        if self.form is None and how.get("keys"):
            raise Trouble(f"the table {how['input']} is cut by files, not by rows: partition_keys need an MLTable file that reads delimited text or JSON lines")
        settings = dict({k: how[k] for k in ("script", "args", "keys") if k in how}, root=self.root, form=self.form)
        self.environment = dict(os.environ, BERTH_PARALLEL=json.dumps(settings))
        self.selector = selectors.DefaultSelector()
        self.queue, self.finished = collections.deque(), []
        self.stopping, self.over, self.took = None, None, None
        self.mine, self.turn = threading.Condition(), None
        self.workers, self.errors, self.copiers = [], 0, []
        self.rows = []  # of each mini-batch of a table
        self.refused = None  # when the server last had no mini-batches

    def items(self):
        """Lists the input: files below the folder, in order."""
        if os.path.isfile(self.root):
            return [""]
        found = []
        for at, folders, files in os.walk(self.root, followlinks=True):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            found += [os.path.relpath(os.path.join(at, f), self.root) for f in files if not f.startswith(".")]
        if not found:
            if not os.path.isdir(self.root):
                raise Trouble(f"the input {self.how['input']} does not exist")
            raise Trouble(f"the input {self.how['input']} has no files: nothing can be scored")
        return sorted(found)

    def plan(self):
        size, items = self.how["size"], self.items()
        if self.form:
            try:
                parts = Table(self.root, self.form, self.how.get("keys")).cut(items, self.how.get("bytes") or TABLE_SIZE)
            except ValueError as e:
                raise Trouble(str(e)) from None
            say(f"the table has {sum(p['rows'] for p in parts)} rows: {len(parts)} mini-batches")
            self.rows = [p.pop("rows") for p in parts]
            return [[json.dumps(p)] for p in parts]
        say(f"the input has {len(items)} files: mini-batches of {size}")
        return [items[i : i + size] for i in range(0, len(items), size)]

    def planned(self):
        """Agrees with the server on the mini-batches, and is its first answer with some of them."""
        answer, all = self.exchange(1), None
        while answer.get("plan") or answer.get("wait"):
            if answer.get("wait"):
                time.sleep(PAUSE)
                answer = self.exchange(1)
                continue
            all = all or self.plan()
            start = end = answer.get("from", 0)
            size = 0
            while end < len(all) and (end == start or size < PLAN_SIZE):
                size += sum(map(len, all[end])) + 8 * len(all[end])
                end += 1
            answer = self.exchange(1, (all[start:end], start, end < len(all)))
        return answer

    def run(self):
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        self.wake, self.woken = os.pipe()
        os.set_blocking(self.woken, False)
        self.selector.register(self.wake, selectors.EVENT_READ, None)
        answer = self.planned()
        self.accept(answer)
        if self.over is None:
            work = answer["work"]
            count = min(self.how["workers"] or cores(), work["waiting"] + len(self.queue))
            say(f"{count} processes on this node")
            self.workers = [None] * count
            for i in range(count):
                self.workers[i] = Worker(self, i)
                self.selector.register(self.workers[i].answers, selectors.EVENT_READ, self.workers[i])
            self.loop()
        self.close()
        if self.stopping is not None:
            return 143
        if self.over.get("write"):
            self.write(self.over.get("work") or {})
        elif self.over.get("reason"):
            say(self.over["reason"])
        return 0

    def stop(self, *_):
        self.stopping = time.monotonic()
        try:
            os.write(self.woken, b"s")
        except OSError:
            pass

    def exchange(self, want, plan=(None, 0, False), finished=(), holding=()):
        rows = self.rows[plan[1] : plan[1] + len(plan[0])] if plan[0] else []
        ask = {"want": want, "plan": plan[0], "from": plan[1], "more": plan[2], "rows": rows, "holding": list(holding), "finished": [f[0] for f in finished]}
        return self.server.request("POST", "/work", json.dumps(ask).encode() + b"\n", [f[1] for f in finished if f[0].get("size")])

    def accept(self, answer):
        self.queue.extend(answer.get("batches") or ())
        self.refused = None if answer.get("batches") else time.monotonic()
        if answer.get("write") or answer.get("end"):
            self.over = answer
        work = answer.get("work")
        if work and work.get("batches"):
            now = time.monotonic()
            if now - getattr(self, "told", -100) > 5:
                self.told = now
                say(f"{work['done'] + work['failed']} of {work['batches']} mini-batches have ended, {work['failed']} failed")

    def exchange_loop(self):
        """Talks to the server while the processes work."""
        while True:
            with self.mine:
                while self.turn is None:
                    self.mine.wait()
                turn = self.turn
            if turn == "end":
                return
            want, finished, holding = turn
            try:
                answer = self.exchange(want, finished=finished, holding=holding)
            except BaseException as e:
                answer = e
            for f in finished:
                if f[1] and os.path.exists(f[1]):
                    os.unlink(f[1])
            with self.mine:
                self.turn, self.answer = None, answer
                os.write(self.woken, b"a")

    def loop(self):
        self.answer, self.away = None, False
        threading.Thread(target=self.exchange_loop, daemon=True).start()
        while True:
            self.hand_out()
            busy = [w for w in self.workers if w.piece is not None]
            if not self.away and (self.over is not None or self.stopping is not None) and not busy and not self.finished:
                break
            if self.stopping is not None and time.monotonic() - self.stopping > self.how.get("grace", 10):
                for w in busy:
                    w.piece = None
                if not self.away and not self.finished:
                    break
            self.send()
            self.wait()
        with self.mine:
            self.turn = "end"
            self.mine.notify()

    def hand_out(self):
        if self.stopping is not None:
            self.queue.clear()
        for w in self.workers:
            if w.ready and w.piece is None and self.queue and self.over is None:
                w.give(self.queue.popleft())

    def send(self):
        """Has the server told what is finished, and asked for more, unless that is under way."""
        if self.away:
            return
        busy = [w.piece["number"] for w in self.workers if w.piece is not None]
        idle = sum(1 for w in self.workers if w.ready and w.piece is None)
        ahead = len(self.workers) if self.took is not None and self.took < SHORT else 0
        want = max(0, idle + ahead - len(self.queue)) if self.over is None and self.stopping is None else 0
        if not self.finished and (idle == 0 or want == 0 or self.pause() > 0):
            return
        finished, self.finished = self.finished, []
        with self.mine:
            self.away, self.turn = True, (want, finished, busy + [p["number"] for p in self.queue])
            self.mine.notify()

    def pause(self):
        """Is how many seconds to wait before the server is asked for mini-batches again."""
        return 0 if self.refused is None else self.refused + PAUSE - time.monotonic()

    def wait(self):
        deadline = None
        if not self.away and self.over is None and self.stopping is None and any(w.ready and w.piece is None for w in self.workers):
            deadline = time.monotonic() + max(0, self.pause())
        for w in self.workers:
            if w.piece is not None:
                at = w.since + self.how["timeout"]
                deadline = at if deadline is None else min(deadline, at)
        if self.stopping is not None:
            at = self.stopping + self.how.get("grace", 10) + 0.05
            deadline = at if deadline is None else min(deadline, at)
        timeout = None if deadline is None else max(0, deadline - time.monotonic())
        for key, _ in self.selector.select(timeout):
            if key.data is None:
                os.read(self.wake, 4096)
                with self.mine:
                    answer, self.answer = self.answer, None
                if answer is not None:
                    self.away = False
                    if isinstance(answer, BaseException):
                        raise answer
                    self.accept(answer)
            else:
                self.hear(key.data)
        now = time.monotonic()
        for w in self.workers:
            if w.piece is not None and now >= w.since + self.how["timeout"]:
                self.replace(w, f"run did not end within {self.how['timeout']:g} seconds")

    def hear(self, w):
        data = os.read(w.answers, BLOCK)
        if not data:
            self.replace(w)
            return
        w.rest += data
        *lines, w.rest = w.rest.split(b"\n")
        for line in lines:
            told = json.loads(line)
            if told.get("failed"):
                raise Trouble(told["failed"])
            if told.get("ready"):
                w.ready = True
            elif w.piece is not None and told["number"] == w.piece["number"]:
                self.took = told["took"]
                self.finish(w, told.get("error"), told.get("returned", 0))

    def finish(self, w, error, returned=0):
        piece, w.piece = w.piece, None
        result = {"number": piece["number"], "try": piece["try"], "returned": returned, "error": (error or "")[:ERROR_SIZE]}
        if error:
            say(f"mini-batch {piece['number']}, try {piece['try'] + 1}, failed: {error}")
            self.errors += 1
            self.note(piece, error)
        elif self.how.get("file") is not None and not self.how.get("summary"):
            result["size"] = os.path.getsize(w.out)
        result["loose"] = not error and bool(self.output) and os.path.isdir(self.output) and bool(os.listdir(self.output))
        self.finished.append((result, w.out))

    def note(self, piece, error):
        folder = os.path.join("logs", "user", "error")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "node-" + self.how["task"] + ".txt"), "a", encoding="utf-8") as f:
            f.write(f"mini-batch {piece['number']} ({', '.join(piece['items'][:5])}): {error}\n")

    def replace(self, w, why=None):
        """Starts another process in the place of one that has died or hangs."""
        self.selector.unregister(w.answers)
        was_ready = w.ready
        how = w.end(kill=why is not None)
        if not was_ready:
            raise Trouble(f"{how} while it loaded the script")
        if w.piece is not None:
            self.finish(w, why or how)
        w.start()
        self.selector.register(w.answers, selectors.EVENT_READ, w)

    def close(self):
        for w in self.workers:
            if w is not None:
                try:
                    os.close(w.asks)
                except OSError:
                    pass
        until = time.monotonic() + (SHUTDOWN_TIME if self.stopping is None else 2)
        for w in self.workers:
            if w is None:
                continue
            try:
                w.process.wait(max(0.01, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                w.process.kill()
                w.process.wait()
        self.copied()

    def copied(self):
        """Waits until what the processes have printed is in the logs. A process that they left
        behind may print on."""
        until = time.monotonic() + LOG_TIME
        for c in self.copiers:
            c.join(max(0, until - time.monotonic()))
        self.copiers = []

    def write(self, work):
        """Writes the result: the rows of all mini-batches, in the order of their files."""
        os.makedirs("logs", exist_ok=True)
        with open(os.path.join("logs", "job_progress_overview.txt"), "w", encoding="utf-8") as f:
            for key in ("batches", "done", "failed", "items", "failedItems"):
                f.write(f"{key}: {work.get(key, 0)}\n")
        if self.output is None or self.how.get("file") is None:
            return
        to = os.path.join(self.output, self.how["file"]) if self.how["file"] else self.output
        if os.path.dirname(to):
            os.makedirs(os.path.dirname(to), exist_ok=True)

        def save(answer):
            with open(to + ".part", "wb") as f:
                while block := answer.read(BLOCK):
                    f.write(block)
                f.flush()
                os.fsync(f.fileno())
            if answer.length not in (None, 0):
                raise http.client.IncompleteRead(b"")
            os.replace(to + ".part", to)
            return os.path.getsize(to)

        try:
            size = self.server.request("GET", "/rows", use=save)
        except NotWriter as e:
            say(f"the result is left to another task: {e}")
            return
        say(f"{os.path.basename(to)} is written: {size} bytes")


def main():
    if len(sys.argv) > 3 and sys.argv[1] == "worker":
        sys.stdout.reconfigure(line_buffering=True, errors="replace")
        return worker(int(sys.argv[2]), int(sys.argv[3]))
    node = None
    try:
        node = Node(json.loads(os.environ.pop("BERTH_PARALLEL")), os.environ.pop("BERTH_WORKER"))
        return node.run()
    except Trouble as e:
        say(f"error: {e}")
        return 1
    finally:
        if node is not None:
            for w in node.workers:
                if w is not None and w.process.poll() is None:
                    w.process.kill()
            node.copied()
            shutil.rmtree(node.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.stdout.flush()
    code = main()
    sys.stdout.flush()
    os._exit(code)
