"""What a bazaar has: stalls that count their sales."""

from django.db import models


class Stall(models.Model):
    name = models.CharField(max_length=50, unique=True)
    sold = models.IntegerField(default=0)


class Note(models.Model):
    text = models.CharField(max_length=200)
