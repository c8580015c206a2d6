"""The channel between server and runtime: what is said arrives whole and in order, and an end is seen."""

from __future__ import annotations

import socket
import time

import pytest
from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.link.channel import AsyncChannel, BlockingChannel, ChannelClosed, frame
from tidegate_engine.link.messages import (
    Abort,
    Failed,
    Output,
    Outputs,
    Quit,
    Ready,
    Stats,
    Submit,
    TokenLogprobs,
    ToRuntime,
    ToServer,
    Vocabulary,
)

SUBMIT = Submit(
    7,
    list(range(50_000)),
    SamplingParams(max_tokens=5, logit_bias={3: -100.0}, stop_token_ids=(2,), logprobs=2, seed=2**63 - 1),
    12.5,
)
OUTPUTS = Outputs(
    [Output(7, [1, 2], [TokenLogprobs(-0.5, [1], [-0.5])], FinishReason.STOP, 16)],
    Stats(1, 2, 3, 4, 5, 6, 7, 8, 0.5, 0.25),
)
READY = Ready(64, 16, 2048, 49152, 32, "torch", {"import": 1.5})


def pair() -> tuple[socket.socket, BlockingChannel[ToRuntime]]:
    server, runtime = socket.socketpair()
    return server, BlockingChannel(runtime, ToRuntime)


async def test_what_the_server_says_arrives_at_the_runtime_in_order() -> None:
    end, runtime = pair()
    server = await AsyncChannel.open(end)
    sent: list[ToRuntime] = [SUBMIT, Vocabulary([b"a", b"\xff", b"<end>"], [2], [2]), Abort([7, 8]), Quit()]
    for message in sent:
        server.send(message)
    received: list[ToRuntime] = []
    await server._writer.drain()
    deadline = time.monotonic() + 5
    while len(received) < len(sent) and time.monotonic() < deadline:
        received += runtime.poll(0.05)
    assert received == sent
    await server.close()
    runtime.close()


@pytest.mark.parametrize(
    "message", [READY, OUTPUTS, Failed("model.gguf: not a GGUF file", 3)], ids=lambda m: type(m).__name__
)
async def test_what_the_runtime_says_arrives_at_the_server(message: ToServer) -> None:
    end, runtime = pair()
    server = await AsyncChannel.open(end)
    runtime.send(message)
    assert await server.receive() == message
    await server.close()
    runtime.close()


async def test_a_runtime_that_is_gone_is_the_end_of_messages_after_the_last_one() -> None:
    end, runtime = pair()
    server = await AsyncChannel.open(end)
    runtime.send(READY)
    runtime.close()
    assert await server.receive() == READY
    assert await server.receive() is None
    with pytest.raises(ChannelClosed):
        server.send(Quit())
    await server.close()


def test_a_server_that_is_gone_closes_the_runtimes_channel_after_its_last_message() -> None:
    end, runtime = pair()
    end.sendall(frame(Abort([1])))
    end.close()
    assert runtime.poll(None) == [Abort([1])]
    assert runtime.poll(None) == []
    assert runtime.closed
    with pytest.raises(ChannelClosed):
        runtime.send(READY)
    runtime.close()


def test_half_a_frame_waits_for_its_other_half() -> None:
    end, runtime = pair()
    whole = frame(SUBMIT)
    end.sendall(whole[:3])
    assert runtime.poll() == []
    end.sendall(whole[3:1000])
    assert runtime.poll(0.01) == []
    end.sendall(whole[1000:] + frame(Quit()))
    assert runtime.poll(1) == [SUBMIT, Quit()]
    end.close()
    runtime.close()


def test_poll_without_a_timeout_does_not_wait() -> None:
    end, runtime = pair()
    started = time.monotonic()
    assert runtime.poll() == []
    assert time.monotonic() - started < 0.5
    end.close()
    runtime.close()


def test_a_length_no_message_can_have_is_a_broken_stream() -> None:
    end, runtime = pair()
    end.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(ChannelClosed, match="broken"):
        runtime.poll(1)
    end.close()
    runtime.close()
