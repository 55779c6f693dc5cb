import os
from pathlib import Path

SECRET_KEY = "for a shop that sells nothing"
ALLOWED_HOSTS = ["localhost", "testserver"]
USE_TZ = True
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).parent.parent / "shop.sqlite3"}
POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ.get("PGDATABASE", "shop")}
DATABASES = {"default": POSTGRES if os.environ.get("SHOP_DATABASE") == "postgresql" else SQLITE}
DATABASES["default"]["ATOMIC_REQUESTS"] = True

INSTALLED_APPS = [
    "gripfast.contrib.django",
    "shop",
]

GRIPFAST = {
    "default": {"DATABASE": "default"},
    "rows": {"DATABASE": "default", "MODE": "row"},
}
