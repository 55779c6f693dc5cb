"""A function that runs only once at a time for each customer; a second call is skipped while the first one runs.

Prints:
    billing customer 7
    billing customer 8
    second call for 7 was skipped: True
"""

import gripfast

client = gripfast.connect()


@client.locked("billing:{customer}", wait=0, busy="skip")
def bill(customer: int) -> bool:
    print("billing customer", customer)
    if customer == 7:
        bill(8)  # another name: free
        print("second call for 7 was skipped:", bill(7) is None)
    return True


bill(7)
client.close()
