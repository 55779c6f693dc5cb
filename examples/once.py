"""Every server has the same cron table, and one of them is to send the digest. If it fails, the next one sends it.

Prints:
    first fails: no mail server
    second sends the digest of monday
    third: done before
    forgotten: True
    third sends the digest of monday
"""

import gripfast

client = gripfast.connect("memory://")


def digest(server: str, mails: bool = True) -> None:
    with client.once("digest:monday", keep=7 * 86400) as run:
        if not run:
            print(f"{server}: {'done before' if run.done else 'somebody does it now'}")
            return
        if not mails:
            raise OSError("no mail server")
        print(f"{server} sends the digest of monday")


try:
    digest("first", mails=False)
except OSError as error:
    print("first fails:", error)
digest("second")
digest("third")
print("forgotten:", client.forget("digest:monday"))
digest("third")
client.close()
