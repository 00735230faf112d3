"""Webhooks in the admin: endpoints with their secrets, and the log of deliveries."""

import re
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminURLFieldWidget
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.encoding import iri_to_uri, punycode
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from api.models import Topic, WebhookDelivery, WebhookEndpoint
from api.webhooks import endpoints
from api.webhooks.addresses import ForbiddenAddress, check_url
from backoffice.admin.pages import ReadOnlyAdmin, labels, office, order_link, timestamp_column
from seckill_site.clocks.database import database_now
from seckill_site.web.admin_lists import CheckedList, column
from seckill_site.web.form_keys import make_once

_ERRORS = (
    (re.compile("(?P<host>.+) has no address"), _("%(host)s has no address")),
    (re.compile("no answer within (?P<seconds>.+) s"), _("no answer within %(seconds)s s")),
    (re.compile("(?P<host>.+) is not a public address"), _("%(host)s is not a public address")),
)
"""What deliveries store in English, and its translation."""

USUAL_TOPICS = [Topic.PAID.value, Topic.USED.value, Topic.REFUNDED.value]


class EndpointForm(forms.ModelForm):  # type: ignore[type-arg]
    """An endpoint."""

    url = forms.URLField(
        label=_("Address"),
        max_length=500,
        assume_scheme="https",
        help_text=_("HTTPS, and reachable from the internet."),
        widget=AdminURLFieldWidget,
    )
    topics = forms.MultipleChoiceField(
        label=_("Events"),
        choices=Topic.choices,
        initial=USUAL_TOPICS,
        widget=forms.CheckboxSelectMultiple,
    )

    class Meta:
        model = WebhookEndpoint
        fields = ("url", "topics", "active")

    def clean_url(self) -> str:
        try:
            url = _in_ascii(str(self.cleaned_data["url"]))
            check_url(url)
        except (ForbiddenAddress, ValueError) as error:
            raise ValidationError(
                gettext("Enter a public HTTPS address without a user name.")
            ) from error
        return url


def _in_ascii(url: str) -> str:
    """Return an address as it is sent, whatever script its host is written in."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return iri_to_uri(urlunsplit(parts._replace(netloc=parts.netloc.replace(host, punycode(host)))))


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(CheckedList):
    """Endpoints. A secret is on the page after its creation and nowhere else."""

    form = EndpointForm
    list_display = ("url", "told", "condition", "failing")
    readonly_fields = ("condition", "created", "failing")
    actions = ("rotate",)
    told = column(_("events"), lambda it: labels(it.topics, Topic))
    created = timestamp_column("created_at", _("created"))
    failing = timestamp_column("failing_since", _("failing since"))

    def get_fields(self, request: HttpRequest, obj: WebhookEndpoint | None = None) -> Any:
        return ("url", "topics", "active", *(self.readonly_fields if obj else ()))

    def save_model(self, request: Any, obj: WebhookEndpoint, form: Any, change: bool) -> None:
        """Save an endpoint; a new one gets a secret, one that is active again starts anew."""
        if not change:
            obj.created_at = database_now()
            endpoints.create_secret(obj)
        if obj.active:
            endpoints.enable(obj)
        super().save_model(request, obj, form, change)

    def response_add(self, request: Any, obj: Any, post_url_continue: Any = None) -> HttpResponse:
        return self._secret_page(request, obj)

    def response_again(self, request: HttpRequest, made: str) -> HttpResponse:
        """Show the secret again: a browser shows only the answer to the second press."""
        endpoint = self.get_object(request, made)
        if endpoint is None:
            return super().response_again(request, made)
        return self._secret_page(request, endpoint)

    @admin.action(description=_("Make a new secret"), permissions=["change"])
    def rotate(self, request: HttpRequest, rows: QuerySet[WebhookEndpoint]) -> HttpResponse | None:
        """Give one endpoint a new secret, and show it once."""
        if len(rows) != 1:
            self.message_user(request, gettext("Select one webhook."), messages.ERROR)
            return None
        make_once(request, f"secret of {rows[0].pk}", partial(self._rotate, request, rows[0]))
        return self._secret_page(request, rows.get())

    def _rotate(self, request: HttpRequest, endpoint: WebhookEndpoint) -> int:
        endpoints.rotate_secret(endpoint, now=database_now())
        self.log_change(request, endpoint, gettext("New secret."))
        return endpoint.pk

    def _secret_page(self, request: Any, endpoint: WebhookEndpoint) -> HttpResponse:
        request.looked_at = f"webhook:{endpoint.pk}"
        about = gettext("Copy this secret now. It is not shown again.")
        if endpoint.old_secret:
            about = gettext(
                "Copy this secret now. It is not shown again. The old one stays valid for 24 hours."
            )
        shown: dict[str, Any] = {"title": gettext("Secret"), "about": about}
        shown |= {"opts": self.opts, "secret": endpoint.secret}
        return office.show(request, "api/secret.html", **shown)

    @admin.display(description=_("state"))
    def condition(self, endpoint: WebhookEndpoint) -> str:
        if endpoint.disabled_at:
            return gettext("needs attention: disabled after failing for days")
        if not endpoint.active:
            return gettext("off")
        return gettext("failing") if endpoint.failing_since else gettext("works")


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(ReadOnlyAdmin):
    """The log: one row per event and endpoint, with the last attempt."""

    list_display = ("message", "endpoint", "topic", "its_order", "state", "result", "tried")
    list_filter = ("state", "topic", "endpoint")
    list_select_related = ("endpoint",)
    search_fields = ("order",)
    search_help_text = _("Order id")
    ordering = ("-pk",)
    fields = (
        "message", "endpoint", "topic", "its_order", "state", "tries", "created", "tried",
        "planned", "result", "took_ms", "answer",
    )  # fmt: skip
    actions = ("resend",)
    message = column(_("message number"), lambda it: it.message_id)
    its_order = column(_("order"), lambda it: order_link(it.order_id))
    created = timestamp_column("created_at", _("created"))
    tried = timestamp_column("tried_at", _("last attempt"))
    planned = timestamp_column("next_at", _("next attempt"))

    @admin.action(description=_("Send the selected deliveries again"), permissions=["resend"])
    def resend(self, request: HttpRequest, deliveries: QuerySet[WebhookDelivery]) -> None:
        """Send deliveries again within seconds, with the same ids."""
        count = endpoints.resend(deliveries.order_by(), now=database_now())
        text = ngettext(
            "%(count)s delivery is sent again.", "%(count)s deliveries are sent again.", count
        )
        self.message_user(request, text % {"count": count}, messages.SUCCESS)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether rows may go, as they do with their endpoint."""
        return super(ReadOnlyAdmin, self).has_delete_permission(request, obj)

    def has_resend_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("api.change_webhookendpoint")

    @admin.display(description=_("result"))
    def result(self, delivery: WebhookDelivery) -> str:
        for pattern, text in _ERRORS:
            if match := pattern.fullmatch(delivery.error):
                return text % match.groupdict()
        return delivery.error or (f"HTTP {delivery.status}" if delivery.status else "–")
