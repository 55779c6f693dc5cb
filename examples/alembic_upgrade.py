"""Alembic: two processes upgrade one database at the same time, and each revision runs once.

Prints:
both upgrades succeeded
the revision ran 1 time
"""

import contextlib
import io
import subprocess
import sys
from pathlib import Path

from alembic import command
from alembic.config import Config

with contextlib.redirect_stdout(io.StringIO()):
    command.init(Config("alembic.ini"), "migrations")
settings = Path("alembic.ini")
settings.write_text(settings.read_text().replace("driver://user:pass@localhost/dbname", "sqlite:///shop.db"))

env = Path("migrations/env.py")  # the two lines
text = "from gripfast.contrib.alembic import migration_lock\n" + env.read_text()
env.write_text(text.replace("else:\n    run_mig", "else:\n    with migration_lock():\n        run_mig"))

Path("migrations/versions/first.py").write_text("""
from alembic import op
revision, down_revision = "first", None

def upgrade():
    open("ran.txt", "a").write("once\\n")
    op.execute("CREATE TABLE carts (id integer PRIMARY KEY)")
""")
upgrade = [sys.executable, "-m", "alembic", "upgrade", "head"]
both = [subprocess.Popen(upgrade, stderr=subprocess.DEVNULL) for _ in range(2)]
print("both upgrades", "succeeded" if [each.wait() for each in both] == [0, 0] else "did not succeed")
print("the revision ran", Path("ran.txt").read_text().count("once"), "time")
