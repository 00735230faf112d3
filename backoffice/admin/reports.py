"""The report across sales in the admin: a page with a period and a grouping, and a CSV file."""

import datetime as dt
from typing import Any

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.pages import check_may, office, office_page
from backoffice.report.across_sales import Grouping, Report, Scope, report_across
from backoffice.report.across_texts import across_csv, chart_of, figures_of, name_of, total_name
from backoffice.report.period import MAX_DAYS, Period
from seckill_site.clocks.database import database_now
from seckill_site.web.csv_files import csv_response
from vouchers.models import YEARS, Merchant, Voucher

SEE_REPORTS = ("vouchers.view_seckillvoucher", "vouchers.change_seckillvoucher")
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
            text = ngettext(
                "Choose at most %(count)s day.", "Choose at most %(count)s days.", MAX_DAYS
            )
            self.add_error("until", text % {"count": MAX_DAYS})
        return data

    def scope(self) -> Scope:
        data = self.cleaned_data
        return Scope(
            period=Period(data["since"], data["until"]),
            by=Grouping(data["by"]),
            voucher_id=data["voucher"].pk if data["voucher"] else None,
            merchant_id=data["merchant"].pk if data["merchant"] else None,
        )


def reports_page(request: HttpRequest) -> HttpResponse:
    check_may(request, *SEE_REPORTS)
    now = database_now()
    form = _form(request, now)
    report = report_across(scope=form.scope(), now=now) if form.is_valid() else None
    total = figures_of(report.total) if report else []
    return office_page(
        request,
        "reports/reports.html",
        title=gettext("Reports"),
        form=form,
        report=report,
        at=now,
        quick=_quick_periods(now, form),
        rows=_rows(form, report) if report else [],
        heads=[it.label for it in total],
        total=total,
        total_name=total_name(),
        chart=chart_of(report) if report else None,
        csv_url=f"{reverse('admin:reports-csv')}?{urlencode(form.data)}",
        voucher=form.cleaned_data.get("voucher"),
        without_voucher=_query(form, voucher=""),
        status=200 if report else 400,
    )


def reports_file(request: HttpRequest) -> HttpResponseBase:
    check_may(request, *SEE_REPORTS)
    now = database_now()
    form = _form(request, now)
    if not form.is_valid():
        return reports_page(request)
    scope = form.scope()
    name = f"sales-{scope.period.first}-{scope.period.last}-by-{scope.by.value}.csv"
    return csv_response(across_csv(report_across(scope=scope, now=now)), name=name)


def _form(request: HttpRequest, now: dt.datetime) -> ScopeForm:
    usual = Period.before(timezone.localtime(now).date(), days=USUAL_DAYS)
    data = {"since": str(usual.first), "until": str(usual.last), "by": Grouping.DAY.value}
    given = {name: request.GET[name] for name in ScopeForm.base_fields if name in request.GET}
    return ScopeForm({**data, **given})


def _quick_periods(now: dt.datetime, form: ScopeForm) -> list[tuple[str, str, bool]]:
    """Return links to the usual periods: text, query, whether it is the present one."""
    periods = []
    for days in QUICK_DAYS:
        period = Period.before(timezone.localtime(now).date(), days=days)
        text = gettext("Today") if days == 1 else gettext("Last %(count)s days") % {"count": days}
        dates = {"since": str(period.first), "until": str(period.last)}
        is_present = all(form.data[name] == value for name, value in dates.items())
        periods.append((text, _query(form, **dates), is_present))
    return periods


def _query(form: ScopeForm, **changes: str) -> str:
    """Return the query of the same page with these changes."""
    return urlencode({name: it for name, it in {**form.data, **changes}.items() if it})


def _rows(form: ScopeForm, report: Report) -> list[dict[str, Any]]:
    return [
        {
            "name": name_of(row),
            "query": _narrower(form, report, row.key),
            "figures": figures_of(row.figures),
        }
        for row in report.rows
    ]


def _narrower(form: ScopeForm, report: Report, key: int) -> str:
    """Return the query of the report on one row: a day by voucher, others by day."""
    by, period = report.scope.by, report.scope.period
    if by is Grouping.DAY:
        day = str(period.day(key))
        return _query(form, since=day, until=day, by=Grouping.VOUCHER.value)
    return _query(form, by=Grouping.DAY.value, **{by.value: str(key)}) if key else ""


office.add_page("reports/", reports_page, name="reports")
office.add_page("reports/csv/", reports_file, name="reports-csv")
