"""A buyer's data, and the end of their account."""

from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from accounts.forms import DeletionForm
from orders.lifecycle.personal_data import IsStaff, data_of, delete_account
from seckill_site.web.responses import allow, for_owner, problem, unavailable
from vouchers.inventory.keys import LedgerUnavailable


@allow("GET", "HEAD")
@login_required
def data(request: HttpRequest) -> HttpResponseBase:
    """Answer with everything stored about the buyer, as a file."""
    assert isinstance(request.user, User)
    response = JsonResponse(
        data_of(request.user), json_dumps_params={"indent": 2, "ensure_ascii": False}
    )
    response["Content-Disposition"] = 'attachment; filename="account.json"'
    return for_owner(response)


@allow("GET", "HEAD", "POST")
@login_required
def delete(request: HttpRequest) -> HttpResponseBase:
    """Delete the account once its owner has confirmed it."""
    assert isinstance(request.user, User)
    form = DeletionForm(request.POST or None, user=request.user)
    if request.method != "POST" or not form.is_valid():
        return for_owner(render(request, "account/delete.html", {"form": form}))
    try:
        delete_account(request.user)
    except IsStaff:
        text = _("Ask an administrator to close a staff account.")
        return problem(request, status=409, code="wrong_state", message=text)
    except LedgerUnavailable:
        return unavailable(request)
    logout(request)
    return redirect("voucher-list")
