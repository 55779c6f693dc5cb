"""What the user looks at, and what each key does to that. Nothing here draws, or talks to the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, get_args

from gripfast.api.rows import Holder, Order, Row, has_all, ordered, searchable
from gripfast.api.watching import View

ORDERS: tuple[Order, ...] = get_args(Order)


class Break(NamedTuple):
    """To be released by force: what these holders have."""

    row: Row


Wish = Literal["quit", "refresh", "pause"] | Break
"""What the session must do."""
Page = Literal["list", "one", "help"]


@dataclass
class State:
    where: str = ""
    order: Order = "waiting"
    is_backwards: bool = False
    filter: str = ""
    is_paused: bool = False
    view: View = field(default_factory=View)
    silent_for: float = 0.0
    """Seconds for which the store has not answered a look that is under way."""
    page: Page = "list"
    message: str = ""
    """What became of the last wish; until the next key."""
    question: Break | None = None
    before_typing: str | None = None
    """The filter as it was before somebody began to change it; None if nobody does."""
    room: int = 1
    """How many rows there is room for. Whoever draws sets it."""
    rows: Sequence[Row] = ()
    """Those that match the filter, in order."""
    index: int = 0
    first: int = 0
    one: Row | None = None
    """The one that is looked at, as it was last seen."""
    is_gone: bool = False
    holder: int = 0
    _is_settled: bool = False
    _texts: Sequence[str] | None = None
    """What the filter looks at, of each row of the view."""

    def see(self, view: View) -> None:
        if view.scan is not self.view.scan:
            self._is_settled = False
            self._texts = None
        self.view = view
        if self.one is not None and view.scan is not None and not view.error:
            now = next((row for row in view.scan.rows if row.key == self.one.key), None)
            self.one, self.is_gone = now or self.one, now is None
            self.holder = min(self.holder, len(self.one.holders) - 1)

    def _settle(self) -> None:
        """Sorts and filters if that is due: of many keys that came at once, only the last has it done. The cursor stays
        on its row, wherever that goes, so that no key hits another one."""
        if self._is_settled:
            return
        followed = self.chosen
        self.rows = ordered(self._matching(), self.order, self.is_backwards)
        self._is_settled = True
        places = (at for at, row in enumerate(self.rows) if followed and row.key == followed.key)
        self._move_to(next(places, self.index))

    def _matching(self) -> Sequence[Row]:
        found = self.view.scan.rows if self.view.scan else ()
        words = self.filter.casefold().split()
        if not words:
            return found
        if self._texts is None:
            self._texts = [searchable(row) for row in found]
        return [row for row, text in zip(found, self._texts, strict=True) if has_all(text, words)]

    @property
    def chosen(self) -> Row | None:
        return self.rows[self.index] if self.index < len(self.rows) else None

    @property
    def is_typing(self) -> bool:
        return self.before_typing is not None

    def fit(self, room: int) -> None:
        """Scrolls, so that the cursor is seen."""
        self.room = max(1, room)
        self._settle()
        self._move_to(self.index)

    def _move_to(self, index: int) -> None:
        self.index = max(0, min(index, len(self.rows) - 1))
        most = max(0, len(self.rows) - self.room)
        self.first = min(max(self.first, self.index - self.room + 1), self.index, most)

    def press(self, key: str) -> Wish | None:
        self.message = ""
        if self.question is not None:
            return self._answer(key)
        if self.is_typing:
            self._type(key)
            return None
        self._settle()
        if self.page == "help":
            self.page = "one" if self.one else "list"
            return None
        does = (_IN_ONE if self.page == "one" else _IN_LIST).get(key) or _EVERYWHERE.get(key)
        return does(self) if does else None

    def _answer(self, key: str) -> Wish | None:
        wish, self.question = self.question, None
        if key in ("y", "Y"):
            return wish
        self.message = "Nothing was changed."
        return None

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.filter = self.filter if key == "enter" else self.before_typing or ""
            self.before_typing = None
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif key == "ctrl-u":
            self.filter = ""
        elif len(key) == 1 or key.startswith("paste:"):
            self.filter += key.removeprefix("paste:")
        self._is_settled = False

    def _step(self, by: int) -> None:
        if self.page == "one" and self.one is not None:
            self.holder = max(0, min(self.holder + by, len(self.one.holders) - 1))
        else:
            self._move_to(self.index + by)

    def _sort(self, by: int) -> None:
        self.order = ORDERS[(ORDERS.index(self.order) + by) % len(ORDERS)]
        self.is_backwards = False
        self._is_settled = False

    def _turn(self) -> None:
        self.is_backwards = not self.is_backwards
        self._is_settled = False

    def _begin_to_type(self) -> None:
        self.before_typing = self.filter

    def _look(self) -> None:
        if self.chosen is not None:
            self.page, self.one, self.is_gone, self.holder = "one", self.chosen, False, 0

    def _back(self) -> None:
        self.page, self.one = "list", None

    def _clear(self) -> None:
        self.filter = ""
        self._is_settled = False

    def _help(self) -> None:
        self.page = "help"

    def _pause(self) -> Wish:
        self.is_paused = not self.is_paused
        return "pause"

    def _ask(self) -> None:
        row = self._meant()
        if row is None:
            self.message = "There is nothing to break."
        elif any(each.kept == "done" for each in row.holders):
            self.message = "It is recorded as done, and nobody holds it. To have it done again: gripfast forget NAME"
        else:
            self.question = Break(row)

    def _meant(self) -> Row | None:
        """In the list all holders of a row; among the holders of one, the one under the cursor."""
        if self.page == "list":
            return self.chosen
        if self.one is None or self.is_gone:
            return None
        return replace(self.one, holders=(self.one.holders[self.holder],))


def holders_of(row: Row) -> list[tuple[Row, Holder]]:
    return [(row, each) for each in row.holders]


Does = Callable[[State], Wish | None]

_EVERYWHERE: dict[str, Does] = {
    **dict.fromkeys(("up", "k"), lambda state: state._step(-1)),
    **dict.fromkeys(("down", "j"), lambda state: state._step(1)),
    "pageup": lambda state: state._step(-state.room),
    "pagedown": lambda state: state._step(state.room),
    **dict.fromkeys(("home", "g"), lambda state: state._step(-(10**9))),
    **dict.fromkeys(("end", "G"), lambda state: state._step(10**9)),
    "b": State._ask,
    **dict.fromkeys(("p", " "), State._pause),
    **dict.fromkeys(("ctrl-l", "u"), lambda _: "refresh"),
    **dict.fromkeys(("?", "h"), State._help),
    "q": lambda _: "quit",
}
_IN_LIST: dict[str, Does] = {
    **dict.fromkeys(("enter", "right"), State._look),
    **dict.fromkeys(("s", ">"), lambda state: state._sort(1)),
    "<": lambda state: state._sort(-1),
    "r": State._turn,
    "/": State._begin_to_type,
    "escape": State._clear,
}
_IN_ONE: dict[str, Does] = dict.fromkeys(("enter", "escape", "left", "backspace", "q"), State._back)
