"""The shop's side of vouchers and sales in Django's admin."""

from django.contrib import admin

from vouchers.admin.voucher import MerchantAdmin, VoucherAdmin
from vouchers.models import Merchant, Voucher

admin.site.register(Merchant, MerchantAdmin)
admin.site.register(Voucher, VoucherAdmin)
