"""Python's httpx (HTTP/1.1 and HTTP/2) and websockets against the address given."""

import asyncio
import os
import sys

import httpx
import websockets

address = sys.argv[1]
url = f"http://{address}"


def http(client, name):
    first = client.get(f"{url}/headers")
    assert first.status_code == 200, first
    assert len(first.headers.get_list("set-cookie")) == 1, first.headers
    again = client.get(f"{url}/headers", headers={"x-twice": "1"})
    assert "set-cookie" not in again.headers, again.headers
    sent = again.json()["headers"]
    names = [name.lower() for name in sent[::2]]
    assert "pool-hop" not in names and "cookie" not in names, names
    body = os.urandom(3_000_000)
    assert client.post(f"{url}/echo", content=body).content == body
    pieces = (body[at : at + 70_000] for at in range(0, len(body), 70_000))
    assert client.post(f"{url}/echo", content=pieces).content == body
    assert len(client.get(f"{url}/bytes?n=5000000").content) == 5_000_000
    head = client.head(f"{url}/bytes?n=1234")
    assert head.headers["content-length"] == "1234" and head.content == b"", head.headers
    with client.stream("GET", f"{url}/events") as events:
        lines = [line for line in events.iter_lines() if line]
    assert lines == ["data: 1", "data: 2", "data: 3"], lines
    print(f"pass httpx {httpx.__version__} {name}")


async def sockets():
    async with websockets.connect(f"ws://{address}/", max_size=None, compression=None) as socket:
        for size in (0, 1, 125, 126, 65_535, 65_536, 1_000_000):
            for message in (os.urandom(size), "x" * size):
                await socket.send(message)
                assert await socket.recv() == message, size
        # In fragments, with a ping between two of them.
        await socket.send(["frag", "men", "ted"])
        assert await socket.recv() == "fragmented"
        await (await socket.ping())
    assert socket.close_code == 1000, socket.close_code
    # Many at once, each with its own order.
    async def one(number):
        async with websockets.connect(f"ws://{address}/", compression=None) as socket:
            for count in range(50):
                await socket.send(f"{number}.{count}")
            return [await socket.recv() for _ in range(50)] == [f"{number}.{count}" for count in range(50)]
    assert all(await asyncio.gather(*(one(number) for number in range(50))))
    print(f"pass websockets {websockets.__version__}")


with httpx.Client() as client:
    http(client, "HTTP/1.1")
with httpx.Client(http1=False, http2=True) as client:
    http(client, "HTTP/2")
asyncio.run(sockets())
