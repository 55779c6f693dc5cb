"""Tries to take a lock as a user who may not write the file (root becomes nobody), and tells what came of it."""

import json
import os
import sys

import gripfast

NOBODY = 65534


def main(url: str, warm_up: str) -> None:
    with gripfast.connect(warm_up) as client:  # everything is imported while it may be read
        client.lock("warm-up").acquire().release()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        with gripfast.connect(url, request_timeout=0.3) as client:
            print("got", client.lock("job").try_acquire())
    except Exception as error:
        print("refused", json.dumps([type(error).__name__, str(error)]))


main(*sys.argv[1:])
