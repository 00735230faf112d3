"""The admin site of the shop: Django's, with a home page and a navigation by job."""

from collections.abc import Callable
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path, reverse

from backoffice.navigation import ENTRIES, desk_of, entry_of_model, links, remember_desk

Page = Callable[..., HttpResponseBase]

user_logged_in.connect(remember_desk, dispatch_uid="backoffice.remember_desk")


class BackOffice(AdminSite):
    """Django's admin with pages of our own. Modules of ``backoffice.admin`` add them."""

    enable_nav_sidebar = False  # the navigation is above the page, and lists need the width

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        self._pages: list[tuple[str, Page, str]] = []
        self._home: Page | None = None

    def add_home(self, view: Page) -> None:
        """Make a view the home page of all staff but cashiers."""
        self._home = view

    def add_page(self, route: str, view: Page, *, name: str) -> None:
        """Add a page at a route below ``/admin/``."""
        self._pages.append((route, view, name))

    def get_urls(self) -> list[URLPattern | URLResolver]:
        own = [path(route, self.admin_view(view), name=name) for route, view, name in self._pages]
        return [*own, *super().get_urls()]

    def index(  # type: ignore[override]
        self, request: HttpRequest, extra_context: Any = None
    ) -> HttpResponse:
        """Show the home page; whoever may only redeem goes there."""
        if request.user.is_authenticated:
            remember_desk(request, request.user)
        if desk_of(request.user) == "redeem":
            return HttpResponseRedirect(reverse("redeem"))
        if self._home is None:
            return super().index(request, extra_context)
        return self._home(request)  # type: ignore[return-value]

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        return {**super().each_context(request), "office_links": links(request)}

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Return the tables by job, in the order of the navigation; for an app, Django's list."""
        apps: list[Any] = super().get_app_list(request, app_label)
        if app_label is not None:
            return apps
        models: dict[str, list[Any]] = {entry.key: [] for entry in ENTRIES}
        for app in apps:
            for model in app["models"]:
                entry = entry_of_model(app["app_label"], model["object_name"])
                models[entry.key].append(model)
        return [
            {
                "name": entry.label,
                "app_label": entry.key,
                "app_url": "",
                "has_module_perms": True,
                "models": models[entry.key],
            }
            for entry in ENTRIES
            if models[entry.key]
        ]
