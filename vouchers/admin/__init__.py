"""The shop's side of vouchers and sales in Django's admin."""

from django.contrib import admin

from vouchers.admin.voucher import VoucherAdmin
from vouchers.models import Voucher

admin.site.register(Voucher, VoucherAdmin)
