"""The public page of a first-come sale's chain, and its list for anybody to check."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse

from orders.proof.publishing import compressed_list, find_chain, has_list
from orders.proof.rows import NoChain
from orders.web.published_files import file_response
from orders.web.refusals import refusals_answered
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.clocks.machine import epoch_ms
from seckill_site.web.responses import allow, as_shell, wants_html
from vouchers.chain import Mark


@allow("GET", "HEAD")
@refusals_answered
def chain(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show the chain of a sale, the same to everyone: its head, and after the end the list."""
    sale = find_chain(sale_id=sale_id)
    is_over = has_list(sale, now_ms=ledger_now_ms())
    about = {
        "voucher_id": str(sale.pk),
        "entries": sale.chain_entries,
        "head": sale.chain_head,
        "given_by_staff": sale.links.filter(mark__startswith=f"{Mark.RETRY} ").count(),
        "ends_at_ms": epoch_ms(sale.ends_at),
        "list_url": reverse("chain-list", args=[sale.pk]) if is_over else None,
    }
    if not wants_html(request):
        return as_shell(JsonResponse(about))
    return as_shell(render(request, "orders/chain.html", {"sale": sale, "about": about}))


@allow("GET", "HEAD")
@refusals_answered
def chain_list(request: HttpRequest, *, sale_id: int, part: int = 0) -> HttpResponse:
    """Return the list of a sale that is over as a file, without people, or a part of it."""
    sale = find_chain(sale_id=sale_id)
    if not has_list(sale, now_ms=ledger_now_ms()):
        raise NoChain(f"sale {sale_id} is not over")
    return file_response(
        request,
        name=f"sale-{sale_id}-{part}.txt" if part else f"sale-{sale_id}.txt",
        tag=f"{sale.chain_head}-{part}",
        compressed=lambda: compressed_list(sale, part=part),
    )
