"""Ids for orders."""

from collections.abc import Iterator

from django.utils.translation import gettext_lazy, gettext_noop

from lab.experiments.experiment import Experiment, Row
from orders.placing.order_ids import mint_order_ids


def anatomy() -> Iterator[Row]:
    """Mint two ids of ours."""
    first, second = mint_order_ids(count=2)
    yield gettext_noop("this shop"), first, second - first


EXPERIMENTS = (
    Experiment(
        "ids",
        gettext_lazy("Ids for orders"),
        (gettext_lazy("kind"), gettext_lazy("an id"), gettext_lazy("to the next")),
        anatomy,
    ),
)
