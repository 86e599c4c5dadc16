"""A gRPC service without generated code: messages are bytes. It speaks HTTP/2 without TLS on PORT."""

import os
from concurrent import futures

import grpc


def fail(request, context):
    context.set_trailing_metadata((("x-why", "asked"),))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, request.decode())


def echo(request, context):
    context.set_trailing_metadata((("x-length", str(len(request))),))
    return request


def count(request, context):
    for number in range(int(request)):
        yield str(number).encode()


def both(requests, context):
    for request in requests:
        yield request


handlers = {
    "Echo": grpc.unary_unary_rpc_method_handler(echo),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
    "Count": grpc.unary_stream_rpc_method_handler(count),
    "Both": grpc.stream_stream_rpc_method_handler(both),
}
server = grpc.server(futures.ThreadPoolExecutor(16))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo.Echo", handlers),))
server.add_insecure_port(f"127.0.0.1:{os.environ['PORT']}")
server.start()
server.wait_for_termination()
