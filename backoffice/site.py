"""The admin site of the shop: Django's, with a home page and a navigation by job."""

from collections.abc import Callable
from typing import Any, TypeVar

from django.contrib.admin import AdminSite
from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path

from backoffice.navigation import ENTRIES, entry_of_model, links, remember_desk, tabs
from seckill_site.web.form_keys import key_of
from seckill_site.web.responses import for_owner

View = TypeVar("View", bound=Callable[..., HttpResponseBase])

user_logged_in.connect(remember_desk, dispatch_uid="backoffice.remember_desk")


class BackOffice(AdminSite):
    """Django's admin with pages of our own. Modules of ``backoffice.admin`` add them."""

    enable_nav_sidebar = False  # the navigation is above the page, and lists need the width

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        self._pages: list[tuple[str, Callable[..., HttpResponseBase], dict[str, str], str]] = []

    def page(self, route: str, *, name: str, **extra: str) -> Callable[[View], View]:
        """Return a decorator that puts a view at a route below ``/admin/``."""

        def add(view: View) -> View:
            self._pages.append((route, view, extra, name))
            return view

        return add

    def get_urls(self) -> list[URLPattern | URLResolver]:
        own = [
            path(route, self.admin_view(view), extra, name=name)
            for route, view, extra, name in self._pages
        ]
        return [*own, *super().get_urls()]

    def show(
        self, request: HttpRequest, template: str, *, status: int = 200, **context: Any
    ) -> HttpResponse:
        """Return a page with our header; ``opts`` are those of the model that it is about."""
        context = {**self.each_context(request), **context}
        return for_owner(TemplateResponse(request, f"admin/{template}", context, status=status))

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        own = {"office_links": links(request), "office_tabs": tabs(request)}
        return {**super().each_context(request), **own, "form_key": key_of(request)}

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
