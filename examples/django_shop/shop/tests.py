from django.test import TestCase, TransactionTestCase, skipUnlessDBFeature

from gripfast.contrib.django import lock, locks

from .models import Item
from .views import reserve


class Selling(TestCase):
    def test_a_busy_item_is_not_sold(self):
        Item.objects.create(name="tea", stock=2)
        with lock("item:tea"):
            assert self.client.get("/sell/tea").status_code == 409
        assert self.client.get("/sell/tea").json() == {"sold": True, "left": 1}


class Reserving(TransactionTestCase):
    @skipUnlessDBFeature("has_select_for_update")  # SQLite can't lock within a transaction
    def test_the_lock_ends_with_the_transaction(self):
        Item.objects.create(name="tea", stock=2)
        reserve("tea")
        assert locks["rows"].inspect("item:tea") is None
