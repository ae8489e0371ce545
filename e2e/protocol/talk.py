"""A client of the server of echo.py behind an endpoint: CA KEY ADDRESS PORT. It says what it saw."""

import asyncio
import ssl
import sys

import websockets

ca, key, address, port = sys.argv[1:5]
context = ssl.create_default_context(cafile=ca)


def connect(**headers):
    # The host name of the endpoint leads to this machine, as DNS would have it.
    return websockets.connect(address, ssl=context, additional_headers=headers, max_size=None, host="127.0.0.1", port=int(port))


async def main():
    async with connect(Authorization="Bearer " + key) as ws:
        for word in ("one", "two"):
            await ws.send(word)
            print(await ws.recv())
        large = bytes(range(256)) * 20000
        await ws.send(large)
        print("large:", await ws.recv() == large[::-1])
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        try:
            async with connect(**headers):
                print("it was let in")
        except websockets.InvalidStatus as e:
            print("refused:", e.response.status_code)


asyncio.run(main())
