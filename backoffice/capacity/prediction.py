"""What a rehearsal will measure on the machine of the figures, if all of it runs there."""

from dataclasses import dataclass

from backoffice.capacity.figures import Figures, Operation
from backoffice.rehearsal.buyers import count_clicks


@dataclass(frozen=True)
class Prediction:
    """``requests_per_s`` and ``drain_s`` are figures of a rehearsal's verdict.

    ``web_s`` is the processor time of the web server.
    """

    requests_per_s: float
    drain_s: float
    web_s: float


def predict_rehearsal(
    *, figures: Figures, buyers: int, units: int, duplicates: int = 10
) -> Prediction:
    """Predict ``manage.py rehearse`` with these sizes: crowd and shop share the cores.

    First every click buys, while the worker writes the orders; then the ledger refuses the rest.
    """
    win, refusal = figures.costs[Operation.WIN], figures.costs[Operation.REFUSAL]
    clicks, sold = count_clicks(buyers=buyers, duplicates=duplicates), min(buyers, units)
    buying = clicks * sold / buyers
    refused = clicks - buying
    sold_s, refused_s = buying / figures.wins_per_s, refused / figures.refusals_per_s
    return Prediction(
        requests_per_s=clicks / (sold_s + refused_s),
        drain_s=max(sold_s, sold / figures.rows_per_s) + figures.lag_s,
        web_s=(buying * win.web_us + refused * refusal.web_us) / 1e6,
    )
