from django.db import migrations, models

HELP = "Whether a buyer may extend the time to pay once, by at most ten minutes, in its last two minutes."


class Migration(migrations.Migration):
    dependencies = [("vouchers", "0016_draw_told_to")]
    operations = [
        migrations.AddField(
            "seckillvoucher",
            "extendable",
            models.BooleanField(
                db_default=True, default=True, help_text=HELP, verbose_name="more time to pay"
            ),
        ),
    ]
