"""Give each sale an identity of its own: its id may be given again after a restore."""

from django.db import migrations, models

import vouchers.models


def draw_identities(apps, schema_editor):
    sales = apps.get_model("vouchers", "SeckillVoucher").objects
    for sale_id in sales.values_list("pk", flat=True):
        sales.filter(pk=sale_id).update(identity=vouchers.models.new_identity())


class Migration(migrations.Migration):

    dependencies = [
        ('vouchers', '0005_answer_count_seconds'),
    ]

    operations = [
        migrations.AddField(
            model_name='seckillvoucher',
            name='identity',
            field=models.PositiveBigIntegerField(
                db_default=0,
                default=vouchers.models.new_identity,
                editable=False,
                help_text='Which sale this is: an id may be given again after a backup was restored.',
            ),
        ),
        migrations.RunPython(draw_identities, migrations.RunPython.noop),
    ]
