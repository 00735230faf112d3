"""Names are told apart by the collations that the project chose, and by SQLite alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, connection
from django.test import Client

from accounts.usernames import find_by_username, username_is_taken
from seckill_site.checks import services
from seckill_site.mysql.collations import COLLATIONS
from vouchers.models import Merchant

migration = import_module("seckill_site.migrations.0003_collations")

DIFFERENT = [
    ("李𬭎", "李𬬭"),
    ("Günter", "Gunter"),
    ("🍜", "🍕"),
    ("小明", "小朋"),
]

NO_NAMES = {
    # words of the program
    *("auth_permission.codename", "django_content_type.app_label", "django_content_type.model"),
    *("lab_lablock.name", "orders_notice.kind", "orders_rulerefusal.rule"),
    *("orders_orderrefusal.reason", "orders_daysum.what"),
    *("orders_handlednotification.provider", "orders_settlementrun.provider"),
    *("orders_providerline.provider", "orders_settlementdifference.provider"),
    *("orders_providerline.direction", "orders_settlementdifference.direction"),
    "vouchers_answercount.answer",
    # digits and letters of one case
    *("api_apitoken.digest", "captcha_captchastore.hashkey", "vouchers_picture.digest"),
    *("accounts_phone.number", "orders_voucherorder.code", "orders_invitationcode.code"),
    *("django_session.session_key", "usersessions_usersession.session_key"),
    "seckill_site_sentform.digest",
    # so long and random that the case does not matter
    *("account_emailconfirmation.key", "orders_handlednotification.notification_id"),
    *("orders_payment.reference", "orders_sandboxtrade.reference"),
    *("orders_providerline.reference", "orders_settlementdifference.reference"),
}
"""Unique texts that nobody chooses."""


@pytest.mark.quick
@pytest.mark.django_db
@pytest.mark.parametrize(("name", "other"), DIFFERENT)
def test_different_names_are_two(name: str, other: str) -> None:
    for model in (Merchant, Group):
        assert model.objects.create(name=name) != model.objects.create(name=other)
        assert model.objects.get(name=name).name == name
    user = User.objects.create_user(name, email=f"{name}@example.com")
    assert not username_is_taken(other)
    assert find_by_username(other) is None
    User.objects.create_user(other)
    assert find_by_username(name) == user
    assert not User.objects.filter(email=f"{other}@example.com").exists()


@pytest.mark.quick
@pytest.mark.django_db
def test_case_makes_two_merchants_and_groups_but_one_account() -> None:
    for model in (Merchant, Group):
        assert model.objects.create(name="Tea") != model.objects.create(name="tea")
    User.objects.create_user("tea")
    with pytest.raises(IntegrityError):
        User.objects.create_user("Tea")


@pytest.mark.quick
@pytest.mark.django_db
@pytest.mark.parametrize("page", ["vouchers/merchant", "vouchers/voucher", "auth/group"])
def test_search_finds_names_in_any_case(admin_client: Client, page: str) -> None:
    Group.objects.create(name="Night Owls")
    merchant = Merchant.objects.create(name="Night Owls")
    merchant.vouchers.create(title="Noodles", price_cents=1, face_value_cents=2)

    found = admin_client.get(f"/admin/{page}/", {"q": "night owls"}).context["cl"]

    assert found.result_count == 1


@pytest.mark.django_db
def test_every_unique_text_is_a_name_or_of_a_program() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT CONCAT(table_name, '.', column_name) FROM information_schema.statistics "
            "JOIN information_schema.columns USING (table_schema, table_name, column_name) "
            "WHERE table_schema = DATABASE() AND non_unique = 0 AND collation_name IS NOT NULL"
        )
        unique = {name for (name,) in cursor.fetchall()}
    models = [(apps.get_model(label)._meta, name) for label, name in COLLATIONS]
    names = {f"{meta.db_table}.{meta.get_field(name).column}" for meta, name in models}
    assert unique - names == NO_NAMES


@contextmanager
def collated(collation: str) -> Iterator[None]:
    """Give the names of merchants another collation for a while."""

    def alter(collation: str) -> None:
        with connection.cursor() as cursor:
            kind = f"varchar(80) COLLATE {collation} NOT NULL"
            cursor.execute(f"ALTER TABLE vouchers_merchant MODIFY name {kind}")

    alter(collation)
    try:
        yield
    finally:
        Merchant.objects.all().delete()
        alter(COLLATIONS["vouchers.Merchant", "name"])


def test_other_collation_is_an_error_with_its_cure(transactional_db: None) -> None:
    with collated("utf8mb4_general_ci"):
        [error] = services.check_database()
        assert error.id == "seckill.E024"
        assert "vouchers_merchant.name has the collation utf8mb4_general_ci" in error.msg
        with connection.cursor() as cursor:
            cursor.execute((error.hint or "").partition("migrate: ")[2].rstrip("."))
        assert not list(services.check_database())


def test_migration_names_what_would_become_the_same(transactional_db: None) -> None:
    composed, combined = "Caf\u00e9", "Cafe\u0301"
    with collated("utf8mb4_bin"), connection.schema_editor() as editor:
        both = [Merchant.objects.create(name=name) for name in (composed, combined)]
        with pytest.raises(migration.SameNames) as error:
            migration.collate_names(apps, editor)
        assert str(error.value).endswith(f"in vouchers.Merchant.name: {composed}, {combined}")

        both[0].delete()
        migration.collate_names(apps, editor)

        assert not list(services.check_database())
        with pytest.raises(IntegrityError):
            Merchant.objects.create(name=composed)
