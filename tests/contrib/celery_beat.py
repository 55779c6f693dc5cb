"""The schedule of a beat: something is due every second."""

import os

from celery import Celery

app = Celery("beat", broker=os.environ["GRIPFAST_URL"])
app.conf.beat_schedule = {"often": {"task": "due", "schedule": 1.0, "options": {"queue": "nobody"}}}
