"""A server of WebSocket, as somebody would deploy it with berth.command."""

import asyncio
import os

import websockets


async def echo(ws):
    async for message in ws:
        await ws.send("echo " + message if isinstance(message, str) else message[::-1])


async def main():
    async with websockets.serve(echo, "127.0.0.1", int(os.environ["PORT"]), max_size=None):
        await asyncio.Future()


asyncio.run(main())
