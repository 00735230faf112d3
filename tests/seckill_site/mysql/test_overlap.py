"""Work while the database executes a statement."""

import pytest
from django.db import DatabaseError, connection, transaction

from seckill_site.mysql.overlap import meanwhile
from tests.support.orders import another_session

pytestmark = pytest.mark.django_db(transaction=True)

SLEEPING = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'"


def ask(statement: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


@pytest.mark.usefixtures("row_locks")
def test_work_runs_while_the_database_executes() -> None:
    seen: list[int] = []

    def look() -> None:
        with another_session() as session, session.cursor() as cursor:
            while not seen or not seen[-1]:
                cursor.execute(SLEEPING)
                seen.append(cursor.fetchone()[0])

    connection.ensure_connection()
    with meanwhile(look):
        assert ask("SELECT SLEEP(0.5)") == 0
    assert seen[-1] == 1


def test_only_the_first_statement_has_work_beside_it() -> None:
    done: list[int] = []
    connection.ensure_connection()
    with meanwhile(lambda: done.append(1)):
        assert [ask("SELECT 5"), ask("SELECT 6")] == [5, 6]
    assert ask("SELECT 7") == 7
    assert done == [1]


def test_error_of_the_work_leaves_a_usable_connection() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    connection.ensure_connection()
    with pytest.raises(ZeroDivisionError), transaction.atomic(), meanwhile(fail):
        ask("SELECT 5")
    assert ask("SELECT 6") == 6


def test_error_of_the_statement_is_raised_after_the_work() -> None:
    done: list[int] = []
    connection.ensure_connection()
    with (
        pytest.raises(DatabaseError),
        transaction.atomic(),
        meanwhile(lambda: done.append(1)),
    ):
        ask("SELECT nothing FROM nowhere")
    assert done == [1]
    assert ask("SELECT 6") == 6


def test_block_without_a_statement_leaves_nothing_behind() -> None:
    done: list[int] = []
    connection.ensure_connection()
    with pytest.raises(ZeroDivisionError), meanwhile(lambda: done.append(1)):
        raise ZeroDivisionError
    done.clear()
    assert ask("SELECT 5") == 5
    assert done == []
