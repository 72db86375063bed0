"""linear_log_prob against the plain path over whole logits: values, gradients, and what it must never hold."""

from __future__ import annotations

import pytest
from log_prob_cases import case, plain, run, tiles
from parity import gap

FLOWS = ("l", "e", "h", "le", "lh", "leh")


@pytest.mark.parametrize("trained", [False, True], ids=["frozen", "trained"])
@pytest.mark.parametrize("flows", FLOWS)
def test_values_and_gradients_are_those_of_the_plain_path(flows: str, trained: bool) -> None:
    given_case = case(rows=9, vocabulary=50, temperature=0.7, kept=11, flows=flows)
    with tiles(4, 16):
        got = run(given_case, trained=trained)
    assert gap(got, run(given_case, plain, trained=trained)) < 1e-12
