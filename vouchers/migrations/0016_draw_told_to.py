from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("vouchers", "0015_sale_years")]
    operations = [migrations.AddField("draw", "told_to", models.BigIntegerField(null=True))]
