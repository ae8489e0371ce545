"""A client of the server of server.py behind an endpoint: CA KEY ADDRESS PREFIX [NAME]. It says what it saw."""

import queue
import sys

import grpc

ca, key, address, prefix = sys.argv[1:5]
options = []
if len(sys.argv) > 5:  # as DNS would have it
    name = sys.argv[5]
    options = [("grpc.ssl_target_name_override", name.partition(":")[0]), ("grpc.default_authority", name)]
with open(ca, "rb") as f:
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(f.read()), options)
metadata = (("authorization", "Bearer " + key), ("x-sent", "yes"))


def method(kind, name):
    return getattr(channel, kind)(prefix + "/demo.Echo/" + name, lambda b: b, lambda b: b)


def refused(name, request, metadata):
    try:
        method("unary_unary", name)(request, metadata=metadata, timeout=30)
    except grpc.RpcError as e:
        return f"{e.code().name} {e.details()}"
    return "nothing"


unary = method("unary_unary", "Unary")
answer, call = unary.with_call(b"hello", metadata=metadata, timeout=30)
print("unary:", answer.decode(), call.code().name, *(f"{k}={v}" for k, v in sorted(call.trailing_metadata())))
print("aborted:", refused("Unary", b"fail", metadata))
print("no method:", refused("None", b"", metadata))
print("no key:", refused("Unary", b"", ()))
print("wrong key:", refused("Unary", b"", (("authorization", "Bearer wrong"),)))
words = queue.Queue()
answers = method("stream_stream", "Chat")(iter(words.get, None), metadata=metadata, timeout=30)
for word in (b"one", b"two"):
    words.put(word)
    print("chat:", next(answers).decode())
words.put(None)
print("chat:", list(answers), answers.code().name)
print("large:", len(unary(b"x" * (3 << 20), metadata=metadata, timeout=30)))
calls = [unary.future(b"%d" % i, metadata=metadata, timeout=60) for i in range(50)]
print("at once:", sum(c.result() == b"echo %d" % i for i, c in enumerate(calls)))
