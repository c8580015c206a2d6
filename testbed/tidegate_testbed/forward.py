"""A port on the host's loopback that leads into the testbed's namespace: `python3 -m tidegate_testbed.forward`."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys

CLONE_NEWNET = 0x40000000


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except (ConnectionError, OSError):
        writer.close()


async def _serve(listener: socket.socket, host: str, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        far_writer.close()
        writer.close()

    server = await asyncio.start_server(connected, sock=listener)
    await server.serve_forever()


def main() -> None:
    """Arguments: namespace, port on 127.0.0.1, address and port inside. The listener stays in the host's namespace."""
    os.chdir("/")  # to keep no folder of the user's busy
    netns, port, host, far_port = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    listener = socket.create_server(("127.0.0.1", port))
    handle = os.open(f"/run/netns/{netns}", os.O_RDONLY)
    # os.setns came with Python 3.12; Debian 12 has 3.11.
    if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {netns}")
    os.close(handle)
    asyncio.run(_serve(listener, host, far_port))


if __name__ == "__main__":
    main()
