"""What the tests share. `tests/` is on the import path: every test says `from support.waiting import until`."""
