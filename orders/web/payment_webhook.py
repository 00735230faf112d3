"""The webhook through which payment providers notify the shop."""

import logging

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt

from orders.lifecycle.cancellation import Busy
from orders.payments.providers import BadNotification, ProviderUnavailable
from orders.payments.service import take_notification
from seckill_site.clocks.database import database_now
from seckill_site.web.responses import allow, problem, unavailable
from vouchers.inventory.keys import LedgerUnavailable

logger = logging.getLogger(__name__)

LARGEST_NOTIFICATION_BYTES = 64 * 1024


@csrf_exempt  # the provider's signature proves who sent it
@allow("POST")
def notify(request: HttpRequest, *, provider: str) -> HttpResponseBase:
    """Process a payment provider's notification; the provider repeats what is not acknowledged."""
    try:
        body = request.read(LARGEST_NOTIFICATION_BYTES)
        headers, now = dict(request.headers), database_now()
        answer = take_notification(provider_name=provider, headers=headers, body=body, now=now)
    except LookupError:
        message = _("There is no such payment provider.")
        return problem(request, status=404, code="not_found", message=message)
    except (BadNotification, OSError) as error:
        logger.warning("refused a notification of %s: %s", provider, error)
        message = _("The notification is not valid.")
        return problem(request, status=400, code="invalid", message=message)
    except (Busy, LedgerUnavailable, ProviderUnavailable):
        return unavailable(request)
    return HttpResponse(answer, content_type="text/plain")
