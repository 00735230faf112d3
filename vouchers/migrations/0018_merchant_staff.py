from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("vouchers", "0017_extendable"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        migrations.AddField(
            "merchant",
            "staff",
            models.ManyToManyField(related_name="merchants", to=settings.AUTH_USER_MODEL),
        ),
    ]
