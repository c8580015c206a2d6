"""The server's life: listen at once, load, answer, drain on SIGTERM, end with a code and a reason."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from tidegate_engine.files.errors import ModelFileError
from tidegate_engine.link.channel import AsyncChannel
from tidegate_engine.server.admin import admin_app
from tidegate_engine.server.app import public_app
from tidegate_engine.server.chat_template import ChatTemplate, ChatTemplateError
from tidegate_engine.server.endings import CONFIGURATION, MODEL_FILE, RUNTIME_DIED, EngineEnded
from tidegate_engine.server.engine import Engine, RuntimeFailed, RuntimeGone
from tidegate_engine.server.errors import Unavailable
from tidegate_engine.server.logs import log
from tidegate_engine.server.runtime_process import RuntimeProcess, manner_of_end
from tidegate_engine.server.sampling import Limits
from tidegate_engine.server.service import ServedModel, Service
from tidegate_engine.server.tokenizer import Tokenizer, TokenizerError, load_tokenizer
from tidegate_engine.server.tool_format import tool_format, visible_bytes
from tidegate_engine.settings import Settings

_LAST_WORDS = 5
"""Seconds that the runtime gets to end by itself, and that readers get to take what is left after the drain."""


class _Listener(uvicorn.Server):
    """uvicorn without its signal handlers: it would close while endpoints still point here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are `_Course`'s business."""
        yield


class _Course:
    """What may happen to a server: a signal asks for its end, a second one for a quick one, a part may fail."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def install_signals(self) -> None:
        """Take the signals over from whoever had them."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._take)

    def _take(self) -> None:
        (self.hurried if self.asked.is_set() else self.asked).set()

    def start(self, part: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a part of the server; what it raises is raised by `wait`."""
        task = asyncio.create_task(part)
        task.add_done_callback(self._notice)
        return task

    def _notice(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)
            self._failed.exception()  # counts as looked at, also where nobody waits any more

    async def wait(self, event: asyncio.Event, seconds: float | None = None) -> bool:
        """Until the event, or the time is over; whether it was the event. Raises what a part raised."""
        waiting = asyncio.create_task(event.wait())
        try:
            waits: set[asyncio.Future[Any]] = {waiting, self._failed}
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._failed.done():
            self._failed.result()
        return event.is_set()


async def serve(settings: Settings, runtime: RuntimeProcess, asked_already: Callable[[], bool]) -> None:
    """Serve until SIGTERM and drained; raises EngineEnded for every other end. Leaves no child process."""
    try:
        course = _Course()
        course.install_signals()
        if asked_already():
            return
        service = Service(settings)
        channel = await AsyncChannel.open(runtime.link)
        engine = Engine(channel, service.telemetry, settings.max_running_requests, settings.max_queued_requests)
        service.engine = engine
        public = _listener(public_app(service), settings, settings.port)
        admin = _listener(admin_app(service), settings, settings.admin_port)
        listening = [course.start(_listen(public)), course.start(_listen(admin))]
        parts = [course.start(_watch(engine, runtime)), course.start(_load(service, engine))]
        try:
            await course.wait(course.asked)
            log("asked_to_end", state=service.state)
            if service.model is not None:
                await _drain(service, engine, public, course)
        finally:
            service.ending = True
            engine.fail_all(Unavailable("the engine is ending"))
            public.should_exit = True
            await _finish(listening[:1], public)
            admin.should_exit = True
            await _finish(listening[1:], admin)
            for part in parts:
                part.cancel()
            if service.model is not None:
                engine.quit()
                await asyncio.to_thread(runtime.wait, _LAST_WORDS)
            await channel.close()
    finally:
        runtime.kill()


def _listener(application: ASGIApp, settings: Settings, port: int) -> _Listener:
    config = uvicorn.Config(
        application,
        host=settings.host,
        port=port,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        backlog=2048,
    )
    return _Listener(config)


async def _listen(listener: _Listener) -> None:
    try:
        await listener.serve()
    except SystemExit as error:  # how uvicorn says that the port is taken
        port = listener.config.port
        raise EngineEnded(CONFIGURATION, f"port {port}: cannot listen on it; free it, or choose another") from error


async def _watch(engine: Engine, runtime: RuntimeProcess) -> None:
    """Read the link until it ends, and say why it did."""
    reading = asyncio.create_task(engine.run())
    ending = asyncio.create_task(runtime.ended())
    try:
        await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            # The last message may still lie in the socket.
            await asyncio.wait({reading}, timeout=1.0)
        if not ending.done():
            await asyncio.wait({ending}, timeout=1.0)
        try:
            if reading.done():
                reading.result()
        except RuntimeFailed as error:
            raise EngineEnded(error.exit_code, str(error)) from error
        except RuntimeGone:
            pass
        how = manner_of_end(ending.result()) if ending.done() else "a closed link"
        raise EngineEnded(RUNTIME_DIED, f"the runtime process ended unexpectedly: {how}")
    finally:
        reading.cancel()
        ending.cancel()


async def _load(service: Service, engine: Engine) -> None:
    settings, started = service.settings, time.monotonic()
    try:
        tokenizer, template = await asyncio.to_thread(_load_text, settings)
    except (ModelFileError, TokenizerError, ChatTemplateError) as error:
        raise EngineEnded(MODEL_FILE, str(error)) from error
    log("tokenizer_ready", seconds=round(time.monotonic() - started, 3), tokens=len(tokenizer.names))
    ready = await engine.wait_ready()
    limits = Limits.of(ready)
    service.model = ServedModel(
        settings.served_name,
        int(time.time()),
        tokenizer,
        template,
        engine,
        limits,
        used := tool_format(tokenizer.chat_template or ""),
        visible_bytes(used, tokenizer),
        tuple(adapter.name for adapter in settings.lora),
    )
    log(
        "ready",
        seconds=round(time.monotonic() - service.boot.at, 3),
        parts={part: round(seconds, 3) for part, seconds in ready.seconds.items()},
        kernels=ready.kernels,
        kv_blocks=ready.kv_blocks,
        block_size=ready.block_size,
        max_model_len=ready.max_model_len,
        slots=ready.slots,
    )


def _load_text(settings: Settings) -> tuple[Tokenizer, ChatTemplate | None]:
    tokenizer = load_tokenizer(settings.model)
    source = tokenizer.chat_template
    return tokenizer, None if source is None else ChatTemplate(source, tokenizer.special_names)


async def _drain(service: Service, engine: Engine, public: _Listener, course: _Course) -> None:
    """Not ready at once, accepting until endpoints have caught up, then let what runs finish."""
    settings = service.settings
    service.ending = True
    log("draining", running=len(engine.answers), endpoint_lag=settings.endpoint_lag, timeout=settings.drain_timeout)
    await course.wait(course.hurried, settings.endpoint_lag)
    public.should_exit = True
    deadline = time.monotonic() + settings.drain_timeout
    while engine.answers and time.monotonic() < deadline:
        if await course.wait(course.hurried, 0.05):
            break
    if engine.answers:
        log("drain_cut_short", running=len(engine.answers))


async def _finish(listening: list[asyncio.Task[None]], listener: _Listener) -> None:
    """Let responses reach their readers; who reads too slowly is cut off."""
    _, late = await asyncio.wait(listening, timeout=_LAST_WORDS)
    if late:
        listener.force_exit = True
        await asyncio.wait(late, timeout=1.0)
