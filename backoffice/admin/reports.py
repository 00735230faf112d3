"""The report across sales in the admin: a page with a period and a grouping, and a CSV file."""

import datetime as dt
from typing import Any

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.pages import SEE_SALES, TEXTS, check_may, office
from backoffice.report.across_sales import Grouping, Scope, report_across
from backoffice.report.across_texts import (
    across_csv,
    before_name,
    chart_of,
    figures_of,
    name_of,
    total_name,
)
from backoffice.report.period import MAX_DAYS, Period
from seckill_site.clocks.database import database_now
from seckill_site.web.csv_files import csv_response
from seckill_site.web.text_files import counted
from vouchers.models import YEARS, Merchant, Voucher

USUAL_DAYS = 30
QUICK_DAYS = (1, 7, 30, 90)


_DATE = forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})
_POSSIBLE = [
    MinValueValidator(dt.date(YEARS[0], 1, 1)),
    MaxValueValidator(dt.date(YEARS[1], 12, 31)),
]


class ScopeForm(forms.Form):
    """The period, and what a row is; an empty form stands for the last days."""

    since = forms.DateField(label=_("From"), validators=_POSSIBLE, widget=_DATE)
    until = forms.DateField(label=_("To"), validators=_POSSIBLE, widget=_DATE)
    by = forms.ChoiceField(label=_("One row for each"), choices=Grouping)
    merchant = forms.ModelChoiceField(
        Merchant.objects.all(), label=_("Merchant"), required=False, empty_label=_("All")
    )
    voucher = forms.ModelChoiceField(
        Voucher.objects.all(), required=False, widget=forms.HiddenInput
    )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        since, until = data.get("since"), data.get("until")
        if since and until and until < since:
            self.add_error("until", gettext("The last day must not be before the first one."))
        elif since and until and (until - since).days >= MAX_DAYS:
            self.add_error("until", TEXTS["too_many_days"] % counted(MAX_DAYS))
        return data

    def scope(self) -> Scope:
        data = self.cleaned_data
        return Scope(
            period=Period(data["since"], data["until"]),
            by=Grouping(data["by"]),
            voucher_id=data["voucher"].pk if data["voucher"] else None,
            merchant_id=data["merchant"].pk if data["merchant"] else None,
        )


@office.page("reports/", name="reports")
def reports_page(request: HttpRequest) -> HttpResponse:
    check_may(request, *SEE_SALES)
    now = database_now()
    form = _form(request, now)
    report = report_across(scope=form.scope(), now=now) if form.is_valid() else None
    before = report_across(scope=report.scope.before, now=now) if report else None
    total = figures_of(report.total) if report else []
    return office.show(
        request,
        "reports/reports.html",
        title=gettext("Reports"),
        form=form,
        report=report,
        at=now,
        quick=_quick_periods(now, form),
        rows=[(it, name_of(it), figures_of(it.figures)) for it in report.rows] if report else [],
        heads=[it.label for it in total],
        total=total,
        total_name=total_name(),
        before=figures_of(before.total) if before else [],
        before_name=before_name(before) if before else "",
        chart=chart_of(report) if report else None,
        voucher=form.cleaned_data.get("voucher"),
        status=200 if report else 400,
    )


@office.page("reports/csv/", name="reports-csv")
def reports_file(request: HttpRequest) -> HttpResponseBase:
    check_may(request, *SEE_SALES)
    now = database_now()
    form = _form(request, now)
    if not form.is_valid():
        return reports_page(request)
    scope = form.scope()
    name = f"sales-{scope.period.first}-{scope.period.last}-by-{scope.by.value}.csv"
    report, before = (report_across(scope=it, now=now) for it in (scope, scope.before))
    return csv_response(across_csv(report, before), name=name)


def _form(request: HttpRequest, now: dt.datetime) -> ScopeForm:
    usual = Period.before(timezone.localtime(now).date(), days=USUAL_DAYS)
    data = {"since": str(usual.first), "until": str(usual.last), "by": Grouping.DAY.value}
    given = {name: request.GET[name] for name in ScopeForm.base_fields if name in request.GET}
    return ScopeForm({**data, **given})


def _quick_periods(now: dt.datetime, form: ScopeForm) -> list[tuple[str, dict[str, str], bool]]:
    """Return the usual periods: text, days, whether it is the present one."""
    periods = []
    for days in QUICK_DAYS:
        period = Period.before(timezone.localtime(now).date(), days=days)
        text = gettext("Today") if days == 1 else gettext("Last %(count)s days") % {"count": days}
        dates = {"since": str(period.first), "until": str(period.last)}
        is_present = all(form.data[name] == value for name, value in dates.items())
        periods.append((text, dates, is_present))
    return periods
