"""A server of gRPC, as somebody would deploy it with berth.command."""

import os
from concurrent import futures

import grpc


def unary(request, context):
    sent = dict(context.invocation_metadata())
    if request == b"fail":
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no such model: café 100%")
    context.set_trailing_metadata((("x-seen", sent.get("x-sent", "")), ("x-key", sent.get("authorization", "none"))))
    return b"echo " + request


def chat(requests, context):
    for r in requests:
        yield b"got " + r


class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/demo.Echo/Unary":
            return grpc.unary_unary_rpc_method_handler(unary)
        if details.method == "/demo.Echo/Chat":
            return grpc.stream_stream_rpc_method_handler(chat)
        return None


server = grpc.server(futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers((Handler(),))
server.add_insecure_port("127.0.0.1:" + os.environ["PORT"])
server.start()
server.wait_for_termination()
