"""Writes a curve for TensorBoard until somebody creates the file `done` beside it."""

import pathlib
import time

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter("runs")
step = 0
while not pathlib.Path("done").exists():
    value = Summary.Value(tag="loss", simple_value=1 / (1 + step))
    writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
    writer.flush()
    step += 1
    time.sleep(0.5)
writer.close()
print(f"wrote {step} points")
