"""The lines of single requests in the benchmark's table."""

from __future__ import annotations

import pytest

from bench.sale.generator import Answer, Hits

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("parts", "rate", "processor", "web_us"), [(1, 40, 2, 50), (2, 20, 1, 100)]
)
def test_parts_of_a_kind_count_as_one(
    parts: int, rate: float, processor: float, web_us: int
) -> None:
    from bench.sale.requests import Kind, line_of
    from bench.sale.run import Sample

    def sample(count: int, web_cpu_s: float) -> Sample:
        answers = [Answer(n, 200, at=1.0, latency_s=0.1) for n in range(count)]
        return Sample(Hits(0.0, answers, 0.1), web_cpu_s, redis_cpu_s=0, database_cpu_s=0)

    kind = Kind("k", "a page and its me/", 0.8, 200, lambda run: [], parts=parts)
    line = line_of(kind, [sample(40, 50e-6)], [sample(20, 100e-6)])
    assert (line.ours, line.theirs) == ([rate], [20])
    assert line.values == [rate / 20]
    assert line.processor == [processor]
    assert line.note.startswith(f"web {web_us} µs, ")
    assert line.note.endswith("(empty 100 µs)")
