from django.core.management.base import BaseCommand

from gripfast.contrib.django import locked
from shop.models import Item


class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("name")
        parser.add_argument("amount", type=int)

    @locked("item:{name}", wait=60)
    def handle(self, *args, **options):
        item, _ = Item.objects.get_or_create(name=options["name"])
        item.stock += options["amount"]
        item.save()
        self.stdout.write(f"{item.name}: {item.stock} in stock")
