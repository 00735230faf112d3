from importlib import import_module

from django.db import migrations, models

make_roles = import_module("orders.migrations.0002_roles").make_roles_with_permissions


def fill_sold_out_at(apps, schema_editor):
    # As reports found it until now: when the order for the last unit was accepted.
    sales = apps.get_model("vouchers", "SeckillVoucher").objects.filter(stock__gt=0, sold_out_at=None)
    orders = apps.get_model("orders", "VoucherOrder").objects
    for pk, stock in sales.values_list("pk", "stock"):
        taken = orders.filter(seckill_voucher=pk).exclude(status="refused").order_by("accepted_at")
        for accepted_at in taken.values_list("accepted_at", flat=True)[stock - 1 : stock]:
            sales.filter(pk=pk).update(sold_out_at=accepted_at)


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0008_merchant_permissions'),
        ('vouchers', '0013_reports'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='voucherorder',
            options={'ordering': ('-id',), 'permissions': [('redeem_voucherorder', 'Can redeem vouchers'), ('end_voucherorder', 'Can cancel and refund orders'), ('export_voucherorder', 'Can export orders'), ('see_customers', 'Can see customers with their contacts, orders and attempts')], 'verbose_name': 'order', 'verbose_name_plural': 'orders'},
        ),
        migrations.AddField(
            model_name='orderevent',
            name='code',
            field=models.CharField(blank=True, choices=[('retried', 'retried'), ('late_payment', 'The payment arrived too late and is being refunded.'), ('wrong_amount', 'The payment was not the price of this order and is being refunded.')], db_default='', default='', max_length=32, verbose_name='code'),
        ),
        migrations.AddField(
            model_name='orderevent',
            name='values',
            field=models.JSONField(null=True, verbose_name='values'),
        ),
        migrations.AddField(
            model_name='rulerefusal',
            name='refused_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name='orderevent',
            index=models.Index(fields=['after', 'at'], name='event_by_after_at'),
        ),
        migrations.AddIndex(
            model_name='voucherorder',
            index=models.Index(fields=['accepted_at'], name='order_by_accepted_at'),
        ),
        migrations.RunPython(fill_sold_out_at, migrations.RunPython.noop),
        migrations.RunPython(make_roles, migrations.RunPython.noop),
    ]
