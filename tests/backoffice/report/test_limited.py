"""The report says how many orders were refused by which limit."""

from __future__ import annotations

import datetime as dt

import pytest

from backoffice.report.figures import report_sale
from backoffice.report.texts import sections
from tests.support.sales import make_loaded_sale
from vouchers.models import AnswerCount

pytestmark = pytest.mark.django_db


def test_report_counts_what_each_limit_refused() -> None:
    sale = make_loaded_sale()
    for answer, count in (("address_limited", 7), ("account_limited", 3)):
        AnswerCount.objects.create(
            seckill_voucher=sale, at=sale.begins_at, answer=answer, count=count
        )

    report = report_sale(sale_id=sale.pk, now=sale.ends_at + dt.timedelta(days=1))

    assert (report.answers["address_limited"], report.answers["account_limited"]) == (7, 3)
    assert sections(report)
