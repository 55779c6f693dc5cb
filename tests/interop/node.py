"""A node process that takes locks by node's own libraries; `lockers.cjs` says what it understands."""

import itertools
import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PATIENCE = 30.0


class Refused(Exception):
    """The library did not get, or no longer had, the lock."""


class Node:
    """One node process. Its answers come by number, so any thread may ask at any time."""

    def __init__(self) -> None:
        assert (FOLDER / "node_modules").is_dir(), "node's packages are not installed: run `make test` once"
        self._process = subprocess.Popen(
            ["node", "lockers.cjs"],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._numbers = itertools.count(1)
        self._asking: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="node", daemon=True)
        self._reader.start()

    def ask(self, order: str, **details: Any) -> Any:
        """What the order gave; Refused if the lock forbade it, AssertionError for anything else."""
        number = next(self._numbers)
        answers = self._asking[number] = queue.SimpleQueue()
        with self._writing:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": number, "order": order, **details}) + "\n")
            self._process.stdin.flush()
        answer = answers.get(timeout=PATIENCE)
        if "refused" in answer:
            raise Refused
        assert "value" in answer, answer
        return answer["value"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._asking.pop(answer["id"]).put(answer)
        complaint = self._process.stderr.read()
        for answers in self._asking.values():
            answers.put({"failed": f"node has ended: {complaint}"})

    def close(self) -> None:
        """The end of its input is the end of the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
