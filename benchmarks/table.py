"""The table of `run.py` for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = (
    "case", "items × rewards", "callers", "items/s", "p50 ms", "p99 ms", "× PIL", "× simplejpeg", "goal",
    "CPU ms\ngateway", "CPU ms\nreplicas", "CPU ms\nRay", "CPU ×\nPIL", "CPU ×\nsimplejpeg", "client\nms",
    "peak MB", "others'\ncores", "wrong",
)  # fmt: skip
WIDTH = 190


def show(summary: dict[str, Any]) -> None:
    """Print the table to stdout."""
    table = Table(title=_title(summary), caption=_caption(), title_justify="left", caption_justify="left")
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for name, case in summary["cases"].items():
        table.add_row(*_row(name, case))
    console = Console()
    # Piped into a file there is no terminal to fit.
    (console if console.is_terminal else Console(width=WIDTH)).print(table)


def _title(summary: dict[str, Any]) -> str:
    machine = summary["machine"]
    return (
        f"{machine['cores']} × {machine['cpu']}, {machine['memory_gb']} GB, Python {machine['python']}; "
        f"medians of {summary['reps']} × {summary['seconds']:g} s"
    )


def _caption() -> str:
    return (
        "× = items/s over the direct loop's with two threads (one thread for n1); CPU per item, × = gateway and "
        "replicas over the direct loop's.\nothers' cores = busy with neither the service nor the load generator."
    )


def _row(name: str, case: dict[str, Any]) -> list[str]:
    direct = case.get("direct", {})
    met = case["met"].get("items_s")
    return [
        name, case["title"], str(case["callers"]), _mark(f"{case['item_s']:.0f}", met),
        f"{case['p50_ms']:.1f}", f"{case['p99_ms']:.1f}",
        *(_ratio(direct, codec, "throughput", case["met"].get(codec)) for codec in ("pil", "simplejpeg")),
        case["goal"],
        *(_number(case, f"{part}_cpu_ms", 2) for part in ("gateway", "replicas", "ray")),
        *(_ratio(direct, codec, "cpu") for codec in ("pil", "simplejpeg")),
        _number(case, "client_cpu_ms", 2), _number(case, "gateway_peak_mb", 0), _number(case, "other_cores", 2),
        ", ".join(f"{count} {kind}" for kind, count in case["bad"].items()) or "0",
    ]  # fmt: skip


def _ratio(direct: dict[str, Any], codec: str, key: str, met: bool | None = None) -> str:
    value = direct.get(codec, {}).get(key)
    return "-" if value is None else _mark(f"{value:.2f}", met)


def _mark(text: str, met: bool | None) -> str:
    if met is None:
        return text
    return f"[green]{text} ✓[/]" if met else f"[red]{text} ✗[/]"


def _number(case: dict[str, Any], key: str, digits: int) -> str:
    return f"{case[key]:.{digits}f}" if key in case else "-"
