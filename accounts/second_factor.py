"""The second factor: allauth's, with the shop's name and QR codes. Staff may have to have one."""

import io
from collections.abc import Callable

import segno
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext

from seckill_site.face.site_face import site_face

STAFF_PATHS = ("/admin/", "/staff/")
FREE_PATHS = ("/admin/login/", "/admin/logout/", "/admin/jsi18n/")


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    def get_totp_issuer(self) -> str:
        """Return the name under which an app lists the account."""
        return site_face().name

    def build_totp_svg(self, url: str) -> str:
        """Return the picture that an app scans: a file of its own, so with its namespace."""
        file = io.BytesIO()
        # Black on white with its border, in dark mode too: many scanners read nothing else.
        segno.make(url).save(file, kind="svg", xmldecl=False, scale=4, light="#fff")
        return file.getvalue().decode()

    def can_delete_authenticator(self, authenticator: Authenticator) -> bool:
        """Return whether a factor may go: the last of staff that needs one may not."""
        user = authenticator.user
        if not (settings.SECKILL_STAFF_SECOND_FACTOR and user.is_staff):
            return True
        others = Authenticator.objects.filter(user=user).exclude(pk=authenticator.pk)
        return bool(others.exclude(type=Authenticator.Type.RECOVERY_CODES).exists())


def lacks_second_factor(user: User | AnonymousUser) -> bool:
    """Return whether this member of staff must set up a second factor first."""
    if not settings.SECKILL_STAFF_SECOND_FACTOR or user.pk is None or not user.is_staff:
        return False
    return not is_mfa_enabled(user, [Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN])


class StaffSecondFactorMiddleware:
    """Sends staff without a second factor from their pages to the page where it is set up."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        path = request.path
        is_staff_page = path.startswith(STAFF_PATHS) and path not in FREE_PATHS
        user = request.user
        if is_staff_page and isinstance(user, User) and lacks_second_factor(user):
            messages.warning(
                request, gettext("Staff must use two-step sign-in. Set it up to continue.")
            )
            return redirect("mfa_index")
        return self._get_response(request)
