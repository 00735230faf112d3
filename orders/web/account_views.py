"""A buyer's data, and the end of their account."""

from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.forms import Form
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from accounts.codes import code_contact, send_code, sent_code
from accounts.forms import ConfirmCodeForm, DeletionForm
from accounts.sessions import user_of
from orders.lifecycle.personal_data import IsStaff, data_of, delete_account
from seckill_site.web.responses import allow, for_owner, problem, unavailable
from vouchers.inventory.keys import LedgerUnavailable


@allow("GET", "HEAD")
@login_required
def data(request: HttpRequest) -> HttpResponseBase:
    """Answer with everything stored about the buyer, as a file."""
    return data_file(user_of(request))


def data_file(user: User) -> HttpResponseBase:
    """Return everything stored about a buyer, as a file that no cache keeps."""
    response = JsonResponse(data_of(user), json_dumps_params={"indent": 2, "ensure_ascii": False})
    response["Content-Disposition"] = 'attachment; filename="account.json"'
    return for_owner(response)


@allow("GET", "HEAD", "POST")
@login_required
def delete(request: HttpRequest) -> HttpResponseBase:
    """Delete the account once its owner has confirmed it: by a code, if there is no password."""
    user = user_of(request)
    address = "" if user.has_usable_password() else code_contact(user)[1]
    if address and request.POST.get("action") == "resend":
        text = _("%(code)s deletes your account. If this was not you, ignore it.")
        send_code(request, user, purpose="deletion", text=text)
        return redirect("account-delete")
    code = sent_code(request, purpose="deletion")
    data = request.POST if request.method == "POST" else None
    form: Form = DeletionForm(data, user=user)
    if address:
        form = ConfirmCodeForm(data, code=code, account=user.pk)
    if not form.is_valid():
        context = {"form": form, "address": address, "is_sent": bool(code)}
        return for_owner(render(request, "account/delete.html", context))
    try:
        delete_account(user)
    except IsStaff:
        text = _("Ask an administrator to close a staff account.")
        return problem(request, status=409, code="wrong_state", message=text)
    except LedgerUnavailable:
        return unavailable(request)
    logout(request)
    messages.success(request, _("Your account is deleted."))
    return redirect("voucher-list")
