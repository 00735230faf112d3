from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('vouchers', '0012_merchants'),
    ]

    operations = [
        migrations.AddField(
            model_name='seckillvoucher',
            name='sold_out_at',
            field=models.DateTimeField(editable=False, help_text='When the last unit went for the first time; more stock does not change it.', null=True),
        ),
        migrations.AddIndex(
            model_name='answercount',
            index=models.Index(fields=['at'], name='answer_count_by_at'),
        ),
        migrations.AddIndex(
            model_name='seckillvoucher',
            index=models.Index(fields=['begins_at'], name='sale_by_begins_at'),
        ),
    ]
