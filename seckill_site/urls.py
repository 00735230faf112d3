"""All URLs of the site; the HTTP contract is ``docs/http.md``."""

from allauth.account.decorators import secure_admin_login
from captcha.views import captcha_image
from django.conf import settings
from django.contrib import admin
from django.urls import include, path

from seckill_site import health
from seckill_site.face import views as face
from seckill_site.web import language

# Staff signs in where everybody does, with the same limits.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]

urlpatterns = [
    path("", include("vouchers.web.urls")),
    path("", include("orders.web.urls")),
    path("api/v1/", include("api.web.urls")),
    path("captcha/image/<slug:key>/", captcha_image, {"scale": 1}, name="captcha-image"),
    path("accounts/", include("accounts.urls")),
    path("face/<slug:digest>/theme.css", face.theme, name="face-theme"),
    path("face/<slug:digest>/icon-<slug:name>.png", face.icon_file, name="face-icon"),
    path("face/<slug:digest>/<slug:language>.webmanifest", face.manifest, name="face-manifest"),
    path("terms/", face.terms, name="terms"),
    path("language/<slug:code>/", language.set_language, name="set-language-link"),
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
handler429 = "seckill_site.web.errors.too_many_requests"
