"""FLOPs by convention, floors, slopes, forecasts: arithmetic only."""

from __future__ import annotations

from typing import Any

import cells
import pytest
from sinkflex.bench import flops
from sinkflex.bench.attention import Attention
from sinkflex.bench.forecast import Forecast
from sinkflex.bench.geometry import GEOMETRIES, parameters
from sinkflex.bench.measure import repetitions, summary
from sinkflex.bench.slopes import slopes
from sinkflex.bench.spec import Spec, blank

GPT_OSS = {"num_q_heads": 64, "num_kv_heads": 8, "head_dim": 64}


def layer(seq: int, window: int | None = None, impl: str = "flash", dtype: str = "bfloat16") -> Spec:
    return Spec("attention", seq, impl, "cpu", dtype, window, GPT_OSS)


def test_B68_flops_by_the_published_convention() -> None:
    """Heads and head_dim of the queries, causal as S^2 / 2, windows as what they are."""
    assert flops.attention_forward(4096, None, 64, 64) == 137_438_953_472
    assert flops.attention_forward(8192, None, 64, 64) == 549_755_813_888
    assert flops.attention_forward(4096, None, 64, 64, exact=True) == 137_472_507_904
    assert flops.pairs(4096, 128) == 516_160
    assert flops.attention_forward(4096, 128, 64, 64) == 8_456_765_440
    assert flops.attention_forward(8192, 128, 64, 64) == 17_046_700_032
    assert flops.BACKWARD == 2.5
    work = Attention(layer(4096)).work
    assert (work["flops"], work["flops_exact"]) == (137_438_953_472, 137_472_507_904)
    rates = Attention(layer(4096)).rates(work, {"fwd_ms": 1.0, "bwd_ms": 2.0})
    assert rates == {"tflops_fwd": pytest.approx(137.438953472), "tflops_bwd": pytest.approx(171.79869184)}
    assert "S^2 / 2" in flops.CONVENTION and "Warm-up and compilation are not timed" in flops.CONVENTION


def test_a_window_as_long_as_the_sequence_is_none() -> None:
    assert flops.pairs(100, 100) == flops.pairs(100, 5000) == flops.pairs(100, None) == 5050
    assert flops.pairs(100, 1) == 100
    assert flops.attention_forward(64, 64, 2, 8) == flops.attention_forward(64, None, 2, 8)


def test_pairs_are_counted_right() -> None:
    for seq, window in ((7, None), (7, 3), (7, 7), (9, 1), (5, 8)):
        seen = sum(1 for q in range(seq) for k in range(q + 1) if window is None or q - k < window)
        assert flops.pairs(seq, window) == seen


@pytest.mark.parametrize(("seq", "mebibytes"), [(4096, 146), (8192, 292), (16384, 584), (32768, 1168)])
def test_the_floor_is_the_table_of_the_targets(seq: int, mebibytes: int) -> None:
    assert Attention(layer(seq)).work["floor_bytes"] == mebibytes << 20
    assert Attention(layer(seq, dtype="float32")).work["floor_bytes"] == (2 * mebibytes << 20) - 8 * seq * 64


def test_no_card_of_the_list_is_faster_than_its_data_sheet() -> None:
    assert flops.most_of("NVIDIA H200") == 989.5
    assert flops.most_of("NVIDIA A100-SXM4-80GB") == 312.0
    assert flops.most_of("a card of tomorrow") is None


def test_gpt_oss_has_as_many_parameters_as_published() -> None:
    assert parameters({**GEOMETRIES["gpt-oss-20b"]}) == 20_914_757_184


def test_the_scaled_model_is_an_eighth_of_gpt_oss() -> None:
    big, small = GEOMETRIES["gpt-oss-20b"], GEOMETRIES["scaled"]
    assert all(
        big[key] == 8 * small[key] for key in ("hidden", "intermediate", "num_q_heads", "num_kv_heads", "vocabulary")
    )
    assert all(big[key] == small[key] for key in ("head_dim", "window", "experts", "experts_per_token"))


def measured(seq: int, peak: int, seconds: float = 1.0, impl: str = "eager", **more: Any) -> dict[str, Any]:
    spec = cells.attention(impl, seq)
    return {**blank(spec, "ok", None), "fwd_ms": seconds * 400, "bwd_ms": seconds * 600, "peak_bytes": peak, **more}


def test_slopes_are_least_squares_and_split_by_part() -> None:
    parts = {"breakdown": {"scores": 0, "experts": 500, "rest": 200}, "largest": {"scores": 0, "experts": 600}}
    rows = [
        measured(n, 5_000_000 + 700 * n, **{k: {part: x * n for part, x in of.items()} for k, of in parts.items()})
        for n in (1000, 2000, 4000)
    ]
    (line,) = slopes([*rows, {**measured(1000, 1), "impl": "flash"}])
    assert line["mb_per_token"] == pytest.approx(700e-6) and line["mb_at_zero"] == pytest.approx(5.0)
    assert line["breakdown"] == pytest.approx({"scores": 0.0, "experts": 500e-6, "rest": 200e-6})
    assert line["largest"] == pytest.approx({"scores": 0.0, "experts": 600e-6})
    curve = [measured(n, 10 * n * n) for n in (1000, 2000, 4000)]
    (line,) = slopes(curve)
    assert line["last_mb_per_token"] == pytest.approx(0.06) and line["mb_per_token"] == pytest.approx(
        0.0514286, rel=1e-4
    )


def test_slopes_leave_out_what_was_not_measured() -> None:
    lost = {**measured(2000, 0), "status": "does_not_fit", "peak_bytes": None}
    assert slopes([measured(1000, 5), lost]) == []


def test_spreads_are_range_over_median() -> None:
    from sinkflex.bench.measure import Sample

    taken = [Sample(0.010, 0.020, 0.03), Sample(0.012, 0.022, 0.05), Sample(0.011, 0.030, 0.04)]
    got = summary(taken)
    assert got["fwd_ms"] == pytest.approx(11.0) and got["bwd_ms"] == pytest.approx(22.0)
    assert got["fwd_spread"] == pytest.approx(2 / 11) and got["bwd_spread"] == pytest.approx(10 / 22)
    assert got["cpu_ms"] == pytest.approx(40.0) and got["repetitions"] == 3
    assert summary(taken[:1])["fwd_spread"] is None


def test_long_passes_are_repeated_less() -> None:
    assert [repetitions(one, 10.0) for one in (0.001, 0.9, 2.0, 4.0, 11.0)] == [20, 11, 5, 3, 1]


def test_eager_memory_is_foreseen_from_one_length() -> None:
    forecast = Forecast()
    first, later = cells.attention("eager", 4096), cells.attention("eager", 8192)
    scores = 4 * 4096 * 4096 * 4
    assert forecast.memory(first) >= 3 * scores  # the least, known beforehand
    forecast.learn(first, measured(4096, 7 * scores, seconds=5.0))
    assert forecast.memory(later) == pytest.approx(28 * scores, rel=0.02)
    assert forecast.seconds(later) == pytest.approx(20.0)


def test_linear_memory_is_foreseen_as_such() -> None:
    forecast = Forecast()
    forecast.learn(cells.attention("flash", 1024), measured(1024, 30_000_000, impl="flash"))
    expected = forecast.memory(cells.attention("flash", 4096))
    assert 120_000_000 <= expected <= 121_000_000 + 2 * 4096 * 6 * 16 * 4
    assert forecast.seconds(cells.attention("flash", 4096, window=None)) == pytest.approx(16.0)
    windowed = cells.attention("flash", 1024, window=16)
    forecast.learn(windowed, measured(1024, 30_000_000, impl="flash"))
    assert forecast.seconds(cells.attention("flash", 4096, window=16)) == pytest.approx(4.0)


def test_two_lengths_of_a_model_give_its_curve() -> None:
    forecast = Forecast()

    def peak(n: int) -> int:
        return 40_000 * n + 50 * n * n

    for n in (1000, 2000):
        forecast.learn(cells.model("eager", n), measured(n, peak(n)))
    spec = cells.model("eager", 8000)
    inputs = 4 * spec.geometry["parameters"]
    assert forecast.memory(spec) == pytest.approx(peak(8000) + inputs, rel=0.001)


def test_nothing_is_foreseen_from_a_cell_that_failed() -> None:
    forecast = Forecast()
    forecast.learn(cells.attention("flash", 64), blank(cells.attention("flash", 64), "failed", "red"))
    assert forecast.seconds(cells.attention("flash", 128)) is None
