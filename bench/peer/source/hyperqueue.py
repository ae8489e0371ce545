"""HyperQueue from its PyPI wheel: server, worker of two cores and client in this process, kept for the whole run.

Reads commands from standard input, one per line, and answers each with a line of JSON:
  latency N STAMP PIPE   milliseconds from submit to the first instruction, N times, idle worker
  tasks N                N x /bin/true as one job: rate, and CPU of the control plane and of the tasks
"""
import contextlib, io, json, os, resource, sys, tempfile, time
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

quiet = dict(stdout=None, stderr=None)


def cpu(who):
    r = resource.getrusage(who)
    return r.ru_utime + r.ru_stime


def wait(client, job):
    with contextlib.redirect_stderr(io.StringIO()):
        client.wait_for_jobs([job])


def latency(client, n, stamp, path):
    pipe = os.fdopen(os.open(path, os.O_RDWR), "r")
    out = []
    for i in range(n):
        time.sleep(0.02 + 0.02 * (i % 7) / 7)
        job = Job()
        job.program([stamp, path], **quiet)
        start = time.time_ns()
        submitted = client.submit(job)
        out.append((int(pipe.readline()) - start) / 1e6)
        wait(client, submitted)
    return dict(ms=out)


def tasks(client, n):
    me, kids, start = cpu(resource.RUSAGE_SELF), cpu(resource.RUSAGE_CHILDREN), time.time()
    job = Job()
    for _ in range(n):
        job.program(["/bin/true"], **quiet)
    wait(client, client.submit(job))
    wall = time.time() - start
    me, kids = cpu(resource.RUSAGE_SELF) - me, cpu(resource.RUSAGE_CHILDREN) - kids
    return dict(per_second=n / wall, own_cpu_ms=me / n * 1e3, cpu_ms=(me + kids) / n * 1e3)


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is not an answer
    os.chdir(tempfile.mkdtemp(prefix="hq", dir=sys.argv[1]))
    with LocalCluster(server_dir=os.getcwd(), worker_config=WorkerConfig(cores=2)) as cluster:
        client = cluster.client()
        tasks(client, 1)
        print(json.dumps(dict(ready=True)), file=out, flush=True)
        for line in sys.stdin:
            verb, *args = line.split()
            answer = latency(client, int(args[0]), *args[1:]) if verb == "latency" else tasks(client, int(args[0]))
            print(json.dumps(answer), file=out, flush=True)


main()
