"""A scripted runtime behind the real server, to be late, silent, dead or chatty on purpose.

As a program it is the engine with this runtime: `fake_runtime.py [--option value] -- engine flags`. Answers repeat the
request's prompt ids, one token a step.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import time
from collections.abc import Sequence

from tidegate_engine.core.request import FinishReason
from tidegate_engine.link.channel import BlockingChannel
from tidegate_engine.link.messages import (
    Abort,
    Event,
    Failed,
    Output,
    Outputs,
    Quit,
    Ready,
    Stats,
    Submit,
    TokenLogprobs,
    ToRuntime,
)


class FakeRuntime:
    """Steps every `pace` seconds; each running request gains a token of its own prompt.

    An adapter begins as many tokens later as its number says.
    """

    def __init__(self, channel: BlockingChannel[ToRuntime], options: argparse.Namespace) -> None:
        self._channel = channel
        self._options = options
        self._running: dict[int, tuple[Submit, int]] = {}
        self._steps = self._generated = self._prompt = 0

    def run(self) -> int:
        while not self._channel.closed:
            for message in self._channel.poll(0 if self._running and not self._options.stall else 0.05):
                if isinstance(message, Quit):
                    return 0
                if isinstance(message, Submit):
                    self._running[message.id] = (message, 0)
                    self._prompt += len(message.prompt)
                elif isinstance(message, Abort):
                    for number in message.ids:
                        self._running.pop(number, None)
                    if not self._running:
                        self._report([])
            if self._running and not self._options.stall:
                self._step()
                if self._steps == self._options.die_at_step:
                    os._exit(9)
                if self._steps == self._options.fail_at_step:
                    self._channel.send(Failed("the accelerator fell off the bus", 4))
                    return 4
                time.sleep(self._options.pace)
        return 0

    def _step(self) -> None:
        outputs = []
        events: list[Event] = []
        self._steps += 1
        for number, (submit, count) in list(self._running.items()):
            token = submit.prompt[(count + submit.params.adapter) % len(submit.prompt)]
            count += 1
            self._generated += 1
            finish = None
            if token in submit.params.stop_token_ids and count > submit.params.min_tokens:
                finish = FinishReason.STOP
            elif count >= submit.params.max_tokens:
                finish = FinishReason.LENGTH
            params = submit.params
            logprobs = None if params.logprobs is None else [scripted_logprobs(-0.5, params.logprobs)]
            scores = None
            if count == 1:
                events.append(Event(number, self._steps, time.monotonic(), 0, len(submit.prompt)))
                if params.prompt_logprobs is not None:
                    scores = [
                        scripted_logprobs(-float(at), params.prompt_logprobs) for at in range(1, len(submit.prompt))
                    ]
            vector = struct.pack("<3f", 0.6, 0.0, -0.8) if params.embed else None
            outputs.append(Output(number, [token], logprobs, finish, 0, scores, vector))
            self._running[number] = (submit, count)
            if finish is not None:
                del self._running[number]
        self._report(outputs, events)
        if not self._running:
            self._report([])

    def _report(self, outputs: list[Output], events: Sequence[Event] = ()) -> None:
        running = len(self._running)
        stats = Stats(running, 0, running, self._steps, 0, self._prompt, 0, self._generated, 0.001, 0.002)
        self._channel.send(Outputs(outputs, stats, list(events)))


def scripted_logprobs(chosen: float, count: int) -> TokenLogprobs:
    return TokenLogprobs(chosen, list(range(count)), [chosen - index for index in range(count)])


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--start", type=float, default=0.0, help="seconds of loading")
    parser.add_argument("--die-at-step", type=int, default=-1)
    parser.add_argument("--fail-at-step", type=int, default=-1)
    parser.add_argument("--stall", action="store_true")
    parser.add_argument("--fail-at-start")
    parser.add_argument("--kv-blocks", type=int, default=64)
    parser.add_argument("--max-model-len", type=int, default=512)
    parser.add_argument("--socket-fd", type=int)
    parser.add_argument("--max-running-requests", type=int, default=32)
    return parser.parse_known_args(arguments)[0]


def run_runtime(options: argparse.Namespace) -> int:
    channel: BlockingChannel[ToRuntime] = BlockingChannel(socket.socket(fileno=options.socket_fd), ToRuntime)
    time.sleep(options.start)
    if options.fail_at_start:
        channel.send(Failed(options.fail_at_start, 3))
        return 3
    slots = options.max_running_requests
    ready = Ready(options.kv_blocks, 16, options.max_model_len, 512, slots, "scripted", {"import": 0.0})
    channel.send(ready)
    return FakeRuntime(channel, options).run()


def main() -> int:
    arguments = sys.argv[1:]
    if "--socket-fd" in arguments:
        return run_runtime(parse(arguments))
    from tidegate_engine.__main__ import main as engine

    cut = arguments.index("--")
    script, flags = arguments[:cut], arguments[cut + 1 :]
    return engine(flags, runtime=[sys.executable, __file__, *script])


if __name__ == "__main__":
    sys.exit(main())
