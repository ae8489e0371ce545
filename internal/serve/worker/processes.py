

def seconds(name):
    """A number of seconds in the environment; 0 where there is none."""
    try:
        return float(os.environ.get(name) or 0)
    except ValueError:
        return 0.0


class Note:
    """What a worker tells the master, in memory that both see: whether it is at work and since when,
    when it last was, how many requests it has answered."""

    FORM = struct.Struct("=dddQ")  # ready since, run since, last use, answered

    def __init__(self, memory, i):
        self.memory, self.at = memory, i * self.FORM.size
        self.ready, self.since, self.last, self.answered = self.FORM.unpack_from(memory, self.at)

    def write(self):
        self.FORM.pack_into(self.memory, self.at, self.ready, self.since, self.last, self.answered)

    def read(self):
        self.ready, self.since, self.last, self.answered = self.FORM.unpack_from(self.memory, self.at)
        return self

    def clear(self):
        self.ready = self.since = 0.0
        self.last, self.answered = time.monotonic(), 0
        self.write()

    def begin(self):
        self.since = time.monotonic()
        self.write()

    def end(self):
        self.since, self.last = 0.0, time.monotonic()
        self.answered += 1
        self.write()

    def touch(self):
        self.last = time.monotonic()
        self.write()

    def idle(self):
        return time.monotonic() - self.last


def shared(count):
    """Memory that processes share, by a file descriptor."""
    size = max(1, count) * Note.FORM.size
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("berth-worker")
    else:
        fd, path = tempfile.mkstemp()
        os.unlink(path)
    os.ftruncate(fd, size)
    return fd, mmap.mmap(fd, size)


def work(listener, note, how):
    """The life of a worker; its exit code."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        begun = time.perf_counter()
        script = os.environ.get("AZUREML_ENTRY_SCRIPT")
        if script:
            served = Script(os.path.join(os.environ.get("AML_APP_ROOT", ""), script))
        else:
            served = MLflow(os.environ.get("AZUREML_MODEL_DIR") or ".")
        loaded = time.perf_counter()
        served.init()
        ready = time.perf_counter()
        start = {"how": how, "import": round((loaded - begun) * 1000, 3), "init": round((ready - loaded) * 1000, 3)}
        print("berth-worker: start", json.dumps(start), flush=True)
    except BootError as e:
        log.error("the deployment cannot be served: %s", e)
        return BOOT_FAILED
    except BaseException:
        log.error("the deployment cannot be served:\n%s", traceback.format_exc())
        if os.environ.get("AZUREML_MODEL_DIR"):
            show_folder(os.environ["AZUREML_MODEL_DIR"])
        return BOOT_FAILED
    note.ready = time.monotonic()
    note.touch()
    return Worker(listener, served, note).serve()


def wanted_modules(path, own, found, seen):
    """Adds the modules that a script imports at its top level, and those that its own modules do."""
    if path in seen or not os.path.isfile(path):
        return
    seen.add(path)
    try:
        with open(path, "rb") as f:
            tree = ast.parse(f.read())
    except (OSError, SyntaxError, ValueError):
        return
    for node in tree.body:
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            inside = os.path.join(own, *name.split("."))
            local = [p for p in (inside + ".py", os.path.join(inside, "__init__.py")) if os.path.isfile(p)]
            if local or os.path.isdir(os.path.join(own, name.split(".")[0])):
                for p in local:
                    wanted_modules(p, own, found, seen)
            elif name not in found:
                found.append(name)


def preload():
    """Imports what the workers will, and nothing more: no code of the user's runs in this process, and
    no model is loaded, so that a fork of it is as good as a fresh process."""
    begun = time.perf_counter()
    found = []
    script = os.environ.get("AZUREML_ENTRY_SCRIPT")
    if script:
        path = os.path.realpath(os.path.join(os.environ.get("AML_APP_ROOT", ""), script))
        wanted_modules(path, os.path.dirname(path), found, set())
    else:
        found = ["mlflow.pyfunc"] + flavor_modules(os.environ.get("AZUREML_MODEL_DIR") or ".")
    for name in found + ["flask", "inference_schema.schema_util", "ctypes"]:  # the last three are the worker's own
        if name.partition(".")[0] in ("azureml", "azureml_inference_server_http"):
            continue  # of which some modules are ours
        try:
            importlib.import_module(name)
        except BaseException:
            log.info("module %s is not imported beforehand", name)
    warm_up(os.path.dirname(path) if script else "")
    gc.collect()
    gc.freeze()
    log.info("the fork server imported %d modules in %.3f s", len(found), time.perf_counter() - begun)


def warm_up(own):
    """Does what every worker would do before its first answer, without any code of the user's. The folder
    of the script may have modules of the same names as ours."""
    if own and not any(name.startswith("azureml") for name in os.listdir(own)):
        offer_decorators()
    # Libraries look for plugins when they are first used; what is installed is then known.
    with contextlib.suppress(Exception):
        sys.modules["importlib.metadata"].entry_points()
    # scikit-learn 1.9 has narwhals do so at the first prediction. It keeps what it found, and has no
    # function for this that is public (2.28, November 2026).
    with contextlib.suppress(Exception):
        sys.modules["narwhals.plugins"]._discover_entrypoints()


def flavor_modules(root):
    """The libraries that an MLflow model is loaded with."""
    out = []
    for at, _, files in os.walk(root):
        if "MLmodel" in files:
            with open(os.path.join(at, "MLmodel"), encoding="utf-8", errors="replace") as f:
                for line in f:
                    name, colon, value = line.strip().partition(":")
                    if name == "loader_module" and colon:
                        out.append(value.strip())
                        out.append(value.strip().rpartition(".")[2])
            break
    return out


def memory_group():
    """The folder of the control group that limits the memory of this process, and its version."""
    try:
        with open("/proc/self/cgroup") as f:
            groups = [line.strip().split(":", 2) for line in f]
    except OSError:
        return "", 2
    for _, controllers, path in groups:
        if "memory" in controllers.split(","):
            return "/sys/fs/cgroup/memory" + path, 1
    for _, controllers, path in groups:
        if not controllers:
            return "/sys/fs/cgroup" + path, 2
    return "", 2


def out_of_memory():
    """How many processes of our control group the kernel has ended for want of memory."""
    at, version = memory_group()
    try:
        with open(os.path.join(at, "memory.oom_control" if version == 1 else "memory.events")) as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("oom_kill "))
    except (OSError, ValueError, IndexError):
        return 0


def limit_of_memory():
    """The limit, for people; empty where there is none."""
    at, version = memory_group()
    try:
        with open(os.path.join(at, "memory.limit_in_bytes" if version == 1 else "memory.max")) as f:
            limit = int(f.read())
        return f" (its limit is {limit >> 20} MiB)" if limit < 1 << 60 else ""
    except (OSError, ValueError):
        return ""


class Master:
    """Starts the workers, replaces those that die, and wakes those that rest when somebody calls."""

    def __init__(self, count):
        self.listeners = []
        for _ in range(count):
            s = socket.socket()
            s.bind((os.environ.get("BERTH_BIND", "127.0.0.1"), int(os.environ.get("BERTH_PORT", "0"))))
            s.listen(128)
            s.setblocking(False)
            self.listeners.append(s)
        self.fd, memory = shared(count)
        self.notes = [Note(memory, i) for i in range(count)]
        self.workers, self.started, self.how = {}, {}, {}
        self.frozen, self.resting, self.watched = set(), set(), set()
        self.retire = seconds("BERTH_FORK")
        self.forks = self.retire > 0
        self.limit = float(os.environ.get("SCORING_TIMEOUT_MS") or 0) / 1000
        self.killed = set()
        self.ooms = out_of_memory()
        self.stopping, self.failed = False, 0

    def start(self, i, how="cold"):
        sys.stdout.flush()
        self.notes[i].clear()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self.workers[pid] = i
            self.started[i], self.how[i] = time.monotonic(), how
            return
        code = 1
        try:
            end_with(parent)
            signal.set_wakeup_fd(-1)
            if how == "cold" and self.retire and self.source:
                self.exec_cold(i)
            self.wait.close()
            for j, s in enumerate(self.listeners):
                if j != i:
                    s.close()
            code = work(self.listeners[i], self.notes[i], how)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def exec_cold(self, i):
        """Becomes a fresh process, which shares nothing that was imported."""
        os.set_inheritable(self.listeners[i].fileno(), True)
        os.set_inheritable(self.fd, True)
        env = dict(os.environ, BERTH_WORKER=self.source, BERTH_LISTENER=str(self.listeners[i].fileno()), BERTH_NOTES=str(self.fd), BERTH_INDEX=str(i))
        os.execve(sys.executable, [sys.executable, "-c", BOOT], env)

    def stop(self, *_):
        self.stopping = True
        for pid in self.workers:
            for s in (signal.SIGTERM, signal.SIGCONT):
                try:
                    os.kill(pid, s)
                except ProcessLookupError:
                    pass

    def run(self):
        print("berth-worker: ports", *(s.getsockname()[1] for s in self.listeners), flush=True)
        self.source = globals().get("berth_source", "")
        wake, end = socket.socketpair()
        wake.setblocking(False)
        end.setblocking(False)
        self.wait = selectors.DefaultSelector()
        self.wait.register(wake, selectors.EVENT_READ, None)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        signal.set_wakeup_fd(end.fileno(), warn_on_full_buffer=False)
        if self.forks:
            preload()
        for i in range(len(self.listeners)):
            self.start(i, "fork" if self.forks else "cold")
        while self.workers or self.resting and not self.stopping:
            self.reap()
            self.check()
            for ready, _ in self.wait.select(self.patience()):
                if ready.data is None:
                    while True:
                        try:
                            if not wake.recv(4096):
                                break
                        except BlockingIOError:
                            break
                elif not self.stopping:
                    self.rouse(ready.data)
        return self.failed

    def reap(self):
        """Takes note of workers that ended or were stopped."""
        while self.workers:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            i = self.workers.get(pid)
            if i is None or os.WIFCONTINUED(status):
                continue
            if os.WIFSTOPPED(status):
                self.frozen.add(i)
                self.watch(i)
                continue
            del self.workers[pid]
            self.frozen.discard(i)
            self.ended(i, pid, os.waitstatus_to_exitcode(status))

    def ended(self, i, pid, code):
        memory = code == -signal.SIGKILL and pid not in self.killed and self.short_of_memory()
        if memory and not self.stopping:
            log.error("the kernel ended worker %d for want of memory%s", pid, limit_of_memory())
            if not self.notes[i].read().ready:  # the next one would end in the same way
                log.error("the deployment cannot be served: init needs more memory than there is")
                code = BOOT_FAILED
        if code == BOOT_FAILED and not self.stopping:
            self.failed = BOOT_FAILED
            self.stop()
        if self.stopping:
            return
        if code == RETIRED or pid in self.killed:
            self.killed.discard(pid)
            self.resting.add(i)
            self.watch(i)
            return
        log.error("worker %d ended with %d; starting another", pid, code)
        if time.monotonic() - self.started.get(i, 0) < 1:
            time.sleep(0.5)  # one that dies at once is not started as fast as it can
        if not self.stopping:
            self.start(i, "fork" if self.forks else "cold")

    def short_of_memory(self):
        """Whether the kernel has ended a process for want of memory since this was last asked."""
        before, self.ooms = self.ooms, out_of_memory()
        return self.ooms > before

    def watch(self, i):
        """Has the master see the next connection to a worker that rests."""
        if i not in self.watched:
            self.watched.add(i)
            self.wait.register(self.listeners[i], selectors.EVENT_READ, i)

    def rouse(self, i):
        """Somebody calls a worker that rests."""
        self.watched.discard(i)
        self.wait.unregister(self.listeners[i])
        if i in self.resting:
            self.resting.discard(i)
            self.start(i, "fork" if self.forks else "cold")
            return
        self.frozen.discard(i)
        for pid, j in self.workers.items():
            if i == j:
                os.kill(pid, signal.SIGCONT)

    def check(self):
        """Ends workers that hang, and those that were stopped for long enough."""
        now = time.monotonic()
        for pid, i in list(self.workers.items()):
            note = self.notes[i].read()
            if i in self.frozen:
                if self.retire and now - note.last > self.retire:
                    self.killed.add(pid)
                    os.kill(pid, signal.SIGKILL)
                continue
            first = self.how.get(i) == "fork" and note.answered == 0
            hangs = self.limit and note.since and now - note.since > self.limit + HANG
            late = first and not note.ready and now - self.started[i] > FIRST
            if not hangs and not late:
                continue
            log.error("worker %d does not end its %s; starting another", pid, "start" if late else "request")
            if first and self.forks:
                log.error("a fork of the fork server hung, so that workers are started cold from now on")
                self.forks = False
            self.notes[i].clear()
            os.kill(pid, signal.SIGKILL)

    def patience(self):
        """How long nothing has to be looked at."""
        if self.stopping:
            return 5
        wait = None
        for pid, i in self.workers.items():
            note = self.notes[i]
            if i in self.frozen:
                after = max(0.01, self.retire - note.idle()) if self.retire else None
            else:
                after = 1 if note.since or not note.ready else 5
            if after is not None:
                wait = after if wait is None else min(wait, after)
        return wait


class Lenient(io.RawIOBase):
    """Standard output, without errors where the disk of the log is full: a script that prints goes on."""

    def __init__(self, fd):
        self.fd = fd

    def writable(self):
        return True

    def fileno(self):
        return self.fd

    def write(self, data):
        try:
            return os.write(self.fd, data)
        except OSError as e:
            if e.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return len(data)


HANG = 5  # seconds that a request may take longer than it may, before its worker is ended
FIRST = 30  # seconds that a fork may take until it is ready
BOOT = 'import os; berth_source = os.environ.pop("BERTH_WORKER"); exec(compile(berth_source, "berth_worker.py", "exec"))'


def die_with_parent(number):
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, number)
    except (ImportError, OSError, AttributeError):
        return False
    return True


def end_with(parent):
    """Has the kernel end this process when its parent ends, where the kernel can."""
    if die_with_parent(signal.SIGTERM) and os.getppid() != parent:
        os._exit(1)


def main():
    codecs.lookup("idna")  # needed by sockets, and found before the working directory changes
    set_up_logging()
    if os.environ.get("BERTH_LISTENER"):
        listener = socket.socket(fileno=int(os.environ.pop("BERTH_LISTENER")))
        note = Note(mmap.mmap(int(os.environ.pop("BERTH_NOTES")), 0), int(os.environ.pop("BERTH_INDEX")))
        sys.exit(work(listener, note, "cold"))
    place_model()
    if os.environ.pop("BERTH_IMAGE_PROGRAM", "") and not os.environ.get("BERTH_COMMAND"):
        log.error("the image's own program can be started only where Docker or Podman runs the image; name the program in the property berth.command")
        sys.exit(BOOT_FAILED)
    if os.environ.get("BERTH_COMMAND"):
        try:
            front = Front(os.environ.pop("BERTH_COMMAND"))
        except OSError as e:
            log.error("port %s of the command cannot be had: %s; leave berth.port out and have the command listen on $PORT", os.environ.get("BERTH_COMMAND_PORT"), e)
            sys.exit(BOOT_FAILED)
        sys.exit(front.run())
    count = int(os.environ.get("WORKER_COUNT") or 1)
    sys.exit(Master(max(1, count)).run())


if __name__ == "__main__":
    main()
