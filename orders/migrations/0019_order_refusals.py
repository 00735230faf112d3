from importlib import import_module

from django.conf import settings
from django.db import migrations, models

make_roles = import_module("orders.migrations.0002_roles").make_roles_with_permissions


class Migration(migrations.Migration):
    dependencies = [("orders", "0018_extended_at"), ("vouchers", "0017_extendable")]
    operations = [
        migrations.CreateModel(
            "OrderRefusal",
            [
                ("id", models.BigAutoField(verbose_name="ID", primary_key=True, auto_created=True, serialize=False)),
                ("seckill_voucher", models.ForeignKey("vouchers.seckillvoucher", models.DO_NOTHING, related_name="order_refusals", db_index=False, db_constraint=False)),
                ("reason", models.CharField(max_length=32)),
                ("user", models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_constraint=False)),
                ("refused_at", models.DateTimeField()),
            ],
            options={
                "default_permissions": (),
                "permissions": [
                    ("export_customer", "Can export what is stored about a customer"),
                    ("delete_customer", "Can delete a customer's data"),
                    ("resend_voucher", "Can send a customer's voucher again"),
                ],
                "verbose_name": "refused attempt",
                "verbose_name_plural": "refused attempts",
                "constraints": [models.UniqueConstraint(name="order_refusal_once", fields=("seckill_voucher", "reason", "user"))],
            },
        ),
        migrations.AddIndex("payment", models.Index(name="payment_by_provider_reference", fields=["provider_reference"])),
        migrations.AddIndex("invitationcode", models.Index(name="invitation_by_code", fields=["code"])),
        migrations.RunPython(make_roles, migrations.RunPython.noop),
    ]
