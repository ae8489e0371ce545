"""Fills the database of an MLflow server: DATABASE TEMPLATE RUNS CURVE POINTS

RUNS copies of the run TEMPLATE, each with a metric "acc" and a parameter "lr", and POINTS points of
the metric "curve" of the run CURVE. These are the rows that requests would leave behind: the server
would take most of an hour for them.
"""

import sys
import uuid

import sqlalchemy
from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlParam, SqlRun, SqlTag

database, template, curve = sys.argv[1], sys.argv[2], sys.argv[4]
runs, points = int(sys.argv[3]), int(sys.argv[5])
engine = sqlalchemy.create_engine(database)


def write(connection, model, rows):
    for at in range(0, len(rows), 10_000):
        connection.execute(model.__table__.insert(), rows[at : at + 10_000])


def of(connection, model):
    table = model.__table__
    return [dict(r) for r in connection.execute(table.select().where(table.c.run_uuid == template)).mappings()]


def point(run, key, value, timestamp, step):
    return {"key": key, "value": value, "timestamp": timestamp, "step": step, "is_nan": False, "run_uuid": run}


with engine.begin() as c:
    (run,) = of(c, SqlRun)
    tags = of(c, SqlTag)
    ids = [uuid.uuid4().hex for _ in range(runs)]
    write(c, SqlRun, [{**run, "run_uuid": i, "artifact_uri": run["artifact_uri"].replace(template, i)} for i in ids])
    write(c, SqlTag, [{**t, "run_uuid": i} for i in ids for t in tags])
    write(c, SqlParam, [{"key": "lr", "value": str(n % 10), "run_uuid": i} for n, i in enumerate(ids)])
    accs = [point(i, "acc", (n * 7919 % runs) / runs, 1, 0) for n, i in enumerate(ids)]
    write(c, SqlMetric, accs)
    write(c, SqlLatestMetric, accs)
    for at in range(0, points, 10_000):
        write(c, SqlMetric, [point(curve, "curve", n % 97, 1700000000000 + n, n) for n in range(at, min(at + 10_000, points))])
    write(c, SqlLatestMetric, [point(curve, "curve", (points - 1) % 97, 1700000000000 + points - 1, points - 1)])
if engine.dialect.name == "postgresql":
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        c.execute(sqlalchemy.text("ANALYZE"))
