"""What a rehearsal will measure, by the figures of the machine on which all of it runs."""

import math
from dataclasses import dataclass

from backoffice.capacity.figures import Figures, Work
from backoffice.rehearsal.buyers import count_clicks
from backoffice.rehearsal.phases import FIRE_S
from backoffice.rehearsal.service import CLICKS_OF_COMMAND


@dataclass(frozen=True)
class Prediction:
    """Figures of a rehearsal's verdict, under the names that they have there."""

    requests: int
    requests_per_s: float
    drain_s: float
    p50_ms: float


def predict_rehearsal(
    *, figures: Figures, buyers: int, units: int, duplicates: int = 10, connections: int = 100
) -> Prediction:
    """Predict the verdict of ``manage.py rehearse`` on a machine that it shares with the shop.

    First every click buys, while the worker writes the orders; then the ledger refuses the rest.
    The crowd pauses after every ``FIRE_S``, to sign the next tokens and to build their requests.
    """
    clicks, sold = count_clicks(buyers=buyers, duplicates=duplicates), min(buyers, units)
    buying = round(sold * clicks / buyers)
    rows_us = sold * figures.costs[Work.ROW].us
    buying_s = _sending_s(figures, buying, Work.ORDER_WINS, beside_us=rows_us)
    sending_s = buying_s + _sending_s(figures, clicks - buying, Work.ORDER_REFUSED)
    at_once = min(clicks, CLICKS_OF_COMMAND)
    build_s, sign_s = (at_once * it / 1e6 for it in (figures.crowd.build_us, figures.crowd.sign_us))
    requests_per_s = clicks / (sending_s + math.ceil(sending_s / FIRE_S) * build_s)
    pauses_s = math.floor(buying_s / FIRE_S) * (sign_s + build_s)
    sold_s = build_s + buying_s + pauses_s
    return Prediction(
        requests=clicks,
        requests_per_s=requests_per_s,
        drain_s=max(sold_s, sold / figures.rows_per_s) + figures.lag_s,
        p50_ms=min(connections, clicks) / requests_per_s * 1000,
    )


def _sending_s(figures: Figures, clicks: int, work: Work, *, beside_us: float = 0.0) -> float:
    """Return the seconds for these clicks: the crowd is one process, and all share the cores."""
    crowd_us = clicks * figures.crowd.send_us
    all_us = crowd_us + clicks * figures.costs[work].us + beside_us
    return max(crowd_us, all_us / figures.cores) / 1e6
