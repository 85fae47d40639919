"""The enroller on the network."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, Request, Response
from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool

from .enroller import EnrollerRole
from .http import BINARY
from .outcomes import RefusedError
from .tokens import requests_bytes
from .web import Allowance, _app, _body, _refusal, _token

# How often a person's requests are signed: an answer may get lost, but signatures take the enroller's CPU. So many times at once,
# and then once per so many seconds.
_AT_ONCE, _RETRY_AFTER = 3, 60.0


def enroller_app(enroller: EnrollerRole) -> FastAPI:
    """For clients: where tokens are signed."""
    app, registry = _app("croupier enroller", enroller.store)
    issued = Counter("croupier_tokens_issued", "Requests that were signed, retries included", registry=registry)
    refused = Counter("croupier_tokens_refused", "Requests that were refused", ["status"], registry=registry)
    signing = Allowance(a_second=1 / _RETRY_AFTER, burst=_AT_ONCE)
    turn = asyncio.Lock()  # Python signs one at a time; more threads would only keep everything else waiting, /healthz included
    allowance, longest = Allowance(), requests_bytes(enroller.slots)

    @app.post("/v1/tokens")
    async def tokens(request: Request) -> Response:
        try:
            person = await run_in_threadpool(enroller.person_of, _token(request))
            allowance.take(person)
            requests = await run_in_threadpool(enroller.commit, person, await _body(request, longest))
            async with turn:
                if await request.is_disconnected():  # nobody would hear it: whoever waits is next
                    return Response(status_code=204)
                signing.take(person)
                answer = await run_in_threadpool(enroller.sign, requests)
        except RefusedError as refusal:
            refused.labels(refusal.status).inc()
            return _refusal(refusal.status, str(refusal))
        issued.inc()
        return Response(answer, media_type=BINARY)

    return app
