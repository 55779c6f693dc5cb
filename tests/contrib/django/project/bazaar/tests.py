"""The tests of a project that uses locks, for Django's own test runner: `manage.py test`."""

import pytest
from django.db import connection, transaction
from django.test import Client, TestCase, TransactionTestCase, override_settings, skipUnlessDBFeature

from gripfast.contrib.django import lock, locked, locks, within
from gripfast.errors import ConfigurationError

from .models import Stall


class InATransaction(TestCase):
    """Each test is in a transaction that is rolled back: it does not count."""

    def setUp(self) -> None:
        Stall.objects.create(name="tea")

    def test_a_locked_view(self) -> None:
        assert Client().get("/sell/tea").json()["sold"] == 1
        assert locks["default"].inspect("stall:tea") is None

    def test_the_locks_are_in_the_database_of_the_tests(self) -> None:
        mark = "memory" if connection.vendor == "sqlite" else "test_"
        assert mark in str(connection.settings_dict["NAME"])
        assert mark in locks["default"].where

    def test_a_transaction_of_the_code_itself_counts(self) -> None:
        with lock("a"), transaction.atomic():
            with pytest.raises(ConfigurationError):
                lock("b")

    @skipUnlessDBFeature("has_select_for_update")
    def test_within_lasts_until_the_end_of_the_test(self) -> None:
        with transaction.atomic():
            within("seat", using="rows")
        assert locks["rows"].inspect("seat") is not None

    @skipUnlessDBFeature("has_select_for_update")
    def test_within_of_another_test_is_free(self) -> None:
        assert locks["rows"].inspect("seat") is None

    @override_settings(GRIPFAST={"default": {"URL": "memory://tests"}})
    def test_a_test_may_have_a_store_of_its_own(self) -> None:
        assert locks["default"].where == "memory://tests"


class WithCommits(TransactionTestCase):
    def test_a_locked_view(self) -> None:
        Stall.objects.create(name="tea")
        assert Client().get("/sell/tea").json()["sold"] == 1

    @skipUnlessDBFeature("has_select_for_update")
    def test_within_ends_with_its_transaction(self) -> None:
        with transaction.atomic():
            within("seat", using="rows")
            assert locks["rows"].inspect("seat") is not None
        assert locks["rows"].inspect("seat") is None

    def test_a_function(self) -> None:
        @locked("a")
        def work() -> bool:
            return locks["default"].inspect("a") is not None

        assert work()
