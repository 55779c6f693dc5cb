"""A small project of ours. Its databases and locks are those of the test, which are in the environment, as JSON."""

import json
import os

SECRET_KEY = "not secret at all, but long enough for the tests that look at it"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "bazaar.urls"
WSGI_APPLICATION = "bazaar.wsgi.application"
STATIC_URL = "static/"
OURS = ["gripfast.contrib.django", "bazaar"]
DJANGOS = [f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages")]
IS_SMALL = bool(os.environ.get("BAZAAR_IS_SMALL"))
INSTALLED_APPS = OURS if IS_SMALL else [*DJANGOS, *OURS]
SESSIONS = ("sessions.middleware.Session", "auth.middleware.Authentication", "messages.middleware.Message")
MIDDLEWARE = [] if IS_SMALL else [f"django.contrib.{name}Middleware" for name in SESSIONS]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES = json.loads(os.environ["BAZAAR_DATABASES"])
GRIPFAST = json.loads(os.environ["BAZAAR_LOCKS"])
