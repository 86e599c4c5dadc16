"""Python's grpc against the address given: calls of every kind, their trailers, and errors."""

import queue
import sys

import grpc

with grpc.insecure_channel(sys.argv[1]) as channel:
    echo = channel.unary_unary("/echo.Echo/Echo")
    for size in (0, 1, 65_535, 65_536, 1_000_000):
        answer, call = echo.with_call(b"x" * size, timeout=20, wait_for_ready=True)
        assert answer == b"x" * size, size
        assert ("x-length", str(size)) in call.trailing_metadata(), call.trailing_metadata()
    try:
        channel.unary_unary("/echo.Echo/Fail")(b"no", timeout=20)
        raise AssertionError("it did not fail")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
        assert error.details() == "no", error
        assert ("x-why", "asked") in error.trailing_metadata(), error
    numbers = [int(number) for number in channel.unary_stream("/echo.Echo/Count")(b"1000", timeout=20)]
    assert numbers == list(range(1000))
    # Both ways, one after the other: each piece comes back before the next is sent.
    pieces = queue.Queue()
    stream = channel.stream_stream("/echo.Echo/Both")(iter(pieces.get, None), timeout=20)
    for number in range(100):
        pieces.put(str(number).encode())
        assert next(stream) == str(number).encode()
    pieces.put(None)
    assert list(stream) == []
    # Many at once on one connection.
    calls = [echo.future(str(number).encode(), timeout=20) for number in range(500)]
    assert [call.result() for call in calls] == [str(number).encode() for number in range(500)]
    # Given up in the middle; the connection goes on.
    endless = channel.unary_stream("/echo.Echo/Count")(b"100000000", timeout=20)
    next(endless)
    endless.cancel()
    assert echo(b"still here", timeout=20) == b"still here"
print(f"pass grpc {grpc.__version__}")
