"""FastAPI: while somebody works on a cart, a request is told to come again.

Prints:
409 Someone else is working on this. Try again later.
200 paid
"""

import json
import socket
import threading
import urllib.error
import urllib.request

import uvicorn
from fastapi import Depends, FastAPI

import gripfast
from gripfast.contrib.fastapi import locked

app = FastAPI()


@app.post("/carts/{cart_id}/pay", dependencies=[Depends(locked("cart:{cart_id}", busy=409))])
async def pay(cart_id: int) -> str:
    return "paid"


listener = socket.create_server(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
threading.Thread(target=server.run, args=[[listener]]).start()
url = f"http://127.0.0.1:{listener.getsockname()[1]}/carts/7/pay"
try:
    with gripfast.lock("cart:7"):  # somebody else, in whatever process
        urllib.request.urlopen(url, data=b"")
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)["detail"])
with urllib.request.urlopen(url, data=b"") as answer:
    print(answer.status, json.load(answer))
server.should_exit = True
