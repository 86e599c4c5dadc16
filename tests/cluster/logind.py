#!/usr/bin/env python3
"""logind.py SOCKET: as much of a system bus with logind behind it as a kubelet asks for, so that a node without systemd can be shut down in order.

SIGUSR1 says that the machine is being shut down, SIGUSR2 that it is not. Messages are D-Bus, little endian, version 1."""
import asyncio
import os
import signal
import struct
import sys

PATH, MANAGER, BUS = "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "org.freedesktop.DBus"
CALL, REPLY, SIGNAL = 1, 2, 4
# Longer than any kubelet asks for: else it writes a file of logind's own on this machine.
INHIBIT_DELAY_MICROSECONDS = 3600 * 1_000_000
# The lock is a file descriptor that the kubelet closes; it has none of this number, and closing it does nothing.
NO_LOCK = 0xFFFFFFFF


def pad(data, to):
    return data + bytes(-len(data) % to)


def text(value):
    return struct.pack("<I", len(value)) + value.encode() + b"\0"


def signature(value):
    return bytes([len(value)]) + value.encode() + b"\0"


def message(kind, serial, fields, of="", body=b""):
    """`fields`: code, type, value; type `s`, `o`, `g` or `u`."""
    if of:
        fields = fields + [(8, "g", of)]
    array = b""
    for code, kind_of, value in fields:
        array = pad(array, 8) + bytes([code]) + signature(kind_of)
        if kind_of == "g":
            array += signature(value)
        else:
            array = pad(array, 4) + (struct.pack("<I", value) if kind_of == "u" else text(value))
    head = struct.pack("<cBBBIII", b"l", kind, 0, 1, len(body), serial, len(array)) + array
    return pad(head, 8) + body


def parse(head, array):
    """The type, serial and header fields of a message."""
    kind, serial = head[1], struct.unpack_from("<I", head, 8)[0]
    fields, at = {}, 0
    while at < len(array):
        at += -at % 8
        code, kind_of = array[at], chr(array[at + 2])
        at += 4
        if kind_of == "g":
            length, start = array[at], at + 1
        else:
            at += -at % 4
            length, start = struct.unpack_from("<I", array, at)[0], at + 4
        if kind_of in "sog":
            fields[code], at = array[start:start + length].decode(), start + length + 1
        else:
            fields[code], at = length, start
    return kind, serial, fields


class Bus:
    def __init__(self):
        self.peers, self.serial = set(), 0

    def send(self, writer, kind, fields, of="", body=b""):
        self.serial += 1
        writer.write(message(kind, self.serial, fields, of, body))

    def announce(self, going):
        for writer in self.peers:
            fields = [(1, "o", PATH), (2, "s", MANAGER), (3, "s", "PrepareForShutdown"), (7, "s", ":1.0")]
            self.send(writer, SIGNAL, fields, "b", struct.pack("<I", going))

    async def serve(self, reader, writer):
        try:
            await reader.readexactly(1)
            while (line := (await reader.readline()).strip()) != b"BEGIN":
                answer = {b"AUTH": b"REJECTED EXTERNAL", b"NEGO": b"ERROR"}
                done = line.startswith(b"AUTH EXTERNAL")
                writer.write((b"OK 0123456789abcdef0123456789abcdef" if done else answer.get(line[:4], b"ERROR")) + b"\r\n")
            self.peers.add(writer)
            while True:
                head = await reader.readexactly(16)
                length, array = struct.unpack_from("<I", head, 4)[0], struct.unpack_from("<I", head, 12)[0]
                fields = await reader.readexactly(array + -array % 8)
                await reader.readexactly(length)
                kind, serial, fields = parse(head, fields[:array])
                if kind == CALL:
                    self.answer(writer, serial, fields.get(3))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.peers.discard(writer)
            writer.close()

    def answer(self, writer, serial, member):
        of, body = {
            "Hello": ("s", text(":1.1")),
            # A variant: its signature, then, at a multiple of eight, the number.
            "Get": ("v", pad(signature("t"), 8) + struct.pack("<Q", INHIBIT_DELAY_MICROSECONDS)),
            "Inhibit": ("u", struct.pack("<I", NO_LOCK)),
        }.get(member, ("", b""))
        self.send(writer, REPLY, [(5, "u", serial), (7, "s", BUS if member == "Hello" else ":1.0")], of, body)


async def main(path):
    bus = Bus()
    if os.path.exists(path):
        os.unlink(path)
    server = await asyncio.start_unix_server(bus.serve, path)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, bus.announce, 1)
    loop.add_signal_handler(signal.SIGUSR2, bus.announce, 0)
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1]))
