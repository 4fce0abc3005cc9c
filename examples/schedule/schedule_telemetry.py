"""telemetry_exporter: OpenTelemetry metrics and spans, here printed from memory instead of sent anywhere.

pip install 'reward-service[otel]'
python examples/schedule/schedule_telemetry.py
"""

import asyncio

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from qreward.client import OpenAIChatProxy
from qreward.testing import FakeJudge
from qreward.utils import schedule
from qreward.utils.scheduler import TelemetryExporter


async def main() -> None:
    reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
    metrics.set_meter_provider(MeterProvider([reader]))
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)

    async with FakeJudge() as judge, OpenAIChatProxy(judge.url, api_key="k") as proxy:

        @schedule(retry_times=2, retry_interval=0.05, telemetry_exporter=TelemetryExporter())
        async def score(text: str) -> object:
            messages = [{"role": "user", "content": text}]
            return await proxy.client.chat.completions.create(model="judge", messages=messages)

        await score("quiet")
        judge.script(500)
        await score("retried")

    print("spans:")
    for span in spans.get_finished_spans():
        indent = "    " if span.parent else "  "
        shown = {k.removeprefix("qreward."): v for k, v in (span.attributes or {}).items() if "latency" not in k}
        print(f"{indent}{span.name}  {', '.join(f'{k}={v}' for k, v in shown.items())}")
    print("metrics:")
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data else []:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = [getattr(p, "value", getattr(p, "count", None)) for p in metric.data.data_points]
                print(f"  {metric.name}: {points}")


if __name__ == "__main__":
    asyncio.run(main())
