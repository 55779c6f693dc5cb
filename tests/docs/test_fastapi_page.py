"""docs/fastapi.md: its applications are served by uvicorn, and the first one answers what the page says."""

from pathlib import Path

import pytest

from support.pages import blocks, is_as_told, page, run_program, run_typed, typed
from support.ports import give_back_port, reserved_port

PAGE = page("fastapi")
SHOP, *OTHERS = blocks(PAGE, "python")
(CONSOLE,) = blocks(PAGE, "console")
SERVED = """
import asyncio, uvicorn


async def serve(app):
    server = uvicorn.Server(uvicorn.Config(app, port=0))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0)
        print("started", *server.servers[0].sockets[0].getsockname()[:1])
        server.should_exit = True


asyncio.run(serve(app))
"""


def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    port = reserved_port()
    session = typed(CONSOLE.replace("8000", str(port)))
    try:
        for (command, told), printed in zip(session, run_typed([each for each, _ in session], tmp_path), strict=True):
            assert is_as_told(printed, told), f"{command}\n{printed}\n{(tmp_path / 'uvicorn.log').read_text()}"
    finally:
        give_back_port(port)


@pytest.mark.parametrize("code", OTHERS)
def test_every_other_application_starts_and_ends(code: str, tmp_path: Path) -> None:
    assert "started 127.0.0.1" in run_program(code + SERVED, tmp_path)
