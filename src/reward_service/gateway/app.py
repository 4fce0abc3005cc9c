"""The HTTP application: FastAPI for everything but ``POST /score``, which is served bare."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from reward_service import __version__
from reward_service.gateway import health as health_report
from reward_service.gateway.parse import MSGPACK
from reward_service.gateway.score import Receive, Scope, ScoreEndpoint, Send
from reward_service.gateway.service import Gateway
from reward_service.schemas import ErrorResponse, HealthResponse, RewardsResponse, ScoreRequest, ScoreResponse

REFUSALS = {
    400: "Empty history, unknown reward, unsupported protocol version.",
    409: "An idempotency key was used with another payload.",
    413: "Too large: send it in parts.",
    422: "The body does not match the schema.",
    429: "Too much is waiting for a reward; see Retry-After.",
    503: "Starting, draining or busy; see Retry-After.",
}


class GatewayApp:
    """ASGI application: ``POST /score`` goes straight to its endpoint, the rest through FastAPI."""

    def __init__(self, gateway: Gateway) -> None:
        self._score = ScoreEndpoint(gateway)
        self.api = create_api(gateway)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/score" and scope["method"] == "POST":
            await self._score(scope, receive, send)
        else:
            await self.api(scope, receive, send)


def create_api(gateway: Gateway) -> FastAPI:
    """Health, rewards, probes and the API's description."""
    api = FastAPI(
        title="Reward service",
        version=__version__,
        description="One POST /score returns every requested reward.",
    )

    @api.get(
        "/health",
        response_model=None,
        responses={200: {"model": HealthResponse}, 503: {"model": HealthResponse}},
    )
    async def health() -> JSONResponse:
        """State of every replica; 503 until every reward is ready, or failed and optional."""
        return JSONResponse(health_report.health(gateway), 200 if health_report.is_ready(gateway) else 503)

    @api.get("/readyz", response_model=None, responses={503: {"model": HealthResponse}})
    async def readyz() -> JSONResponse:
        """Whether to send work here."""
        return JSONResponse(
            {"status": health_report.status_of(gateway)}, 200 if health_report.is_ready(gateway) else 503
        )

    @api.get("/livez")
    async def livez() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @api.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(gateway.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @api.get("/rewards", response_model=RewardsResponse)
    async def rewards() -> dict[str, list[str]]:
        """Names for required_rewards."""
        return {"rewards": sorted(gateway.groups)}

    @api.api_route("/score", methods=["GET", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    async def not_post() -> Response:
        return JSONResponse({"detail": "use POST /score"}, 405, headers={"allow": "POST"})

    describe = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            add_score(describe())
        assert api.openapi_schema is not None
        return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]
    return api


def add_score(schema: dict[str, Any]) -> None:
    """Describe ``POST /score``, which FastAPI does not route."""
    template = "#/components/schemas/{model}"
    models = schema.setdefault("components", {}).setdefault("schemas", {})
    for model, mode in (
        (ScoreRequest, "validation"),
        (ScoreResponse, "serialization"),
        (ErrorResponse, "serialization"),
    ):
        described = model.model_json_schema(ref_template=template, mode=mode)  # type: ignore[arg-type]
        models.update(described.pop("$defs", {}))
        models[model.__name__] = described

    def content(model: str) -> dict[str, Any]:
        ref = {"schema": {"$ref": template.format(model=model)}}
        return {"application/json": ref, MSGPACK: ref}

    schema["paths"]["/score"] = {
        "post": {
            "summary": "Score",
            "description": "Score every request with its required rewards.",
            "operationId": "score",
            "requestBody": {"required": True, "content": content("ScoreRequest")},
            "responses": {
                "200": {
                    "description": "One result per request, in order.",
                    "content": content("ScoreResponse"),
                },
                **{
                    str(status): {"description": text, "content": content("ErrorResponse")}
                    for status, text in REFUSALS.items()
                },
            },
        }
    }
