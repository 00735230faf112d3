"""All URLs of the site; the HTTP contract is ``docs/http.md``."""

from captcha.views import captcha_image
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

from seckill_site import health
from seckill_site.web import accounts

admin.site.login_form = accounts.BoundedAdminLoginForm

urlpatterns = [
    path("", include("vouchers.web.urls")),
    path("", include("orders.web.urls")),
    path(
        "accounts/login/",
        LoginView.as_view(
            authentication_form=accounts.BoundedLoginForm, redirect_authenticated_user=True
        ),
        name="login",
    ),
    path("accounts/logout/", LogoutView.as_view(), name="logout"),
    path("accounts/signup/", accounts.signup, name="signup"),
    path("captcha/image/<slug:key>/", captcha_image, {"scale": 1}, name="captcha-image"),
    path("language/<slug:code>/", accounts.set_language, name="set-language-link"),
    path("admin/", admin.site.urls),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
]
if settings.SECKILL_LAB:
    urlpatterns.append(path("lab/", include("lab.urls")))

handler400 = "seckill_site.web.errors.bad_request"
handler403 = "seckill_site.web.errors.permission_denied"
handler404 = "seckill_site.web.errors.not_found"
handler500 = "seckill_site.web.errors.server_error"
