"""Engines, one folder each. The `spec.py` of a folder names all that the rest of Gripfast has to know about the engine.

Another package adds an engine by an entry point in the group `gripfast.stores`, which names its StoreSpec. The engines
of this package have entry points, too, but are found without them, because reading entry points takes milliseconds.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gripfast.core import rules
from gripfast.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from urllib.parse import SplitResult

    from gripfast.core.ports import Capabilities, Store
    from gripfast.stores.options import Option

BUILT_IN = (
    "memory", "sqlite", "redis", "redlock", "sentinel", "cluster", "valkey", "postgres", "mysql", "zookeeper", "etcd",
    "sql",
)  # fmt: skip
"""The folders of this package that have a spec."""
GROUP = "gripfast.stores"
"""The group of entry points."""


class StoreSpec(NamedTuple):
    """One engine. It costs next to nothing to import: no driver is loaded before a URL or a client asks for it."""

    name: str
    factory: str
    """The module that makes stores. It has `factory(url, options)` if there are schemes, `factory_of(client, options)`
    if there are clients, `factory_of_several(targets, options)` if it takes lists. Each returns a StoreFactory, and
    removes the options that it knows from `options`."""
    schemes: tuple[str, ...] = ()
    """Of the URLs that `factory` takes."""
    names_driver: bool = False
    """The scheme may name a driver, `postgresql+asyncpg`: it is ignored."""
    several_hosts: bool = False
    """Its URLs name several hosts, with commas between them."""
    clients: tuple[str, ...] = ()
    """Classes that `factory_of` takes, by qualified name: no driver is imported to recognise its client."""
    pools: tuple[str, ...] = ()
    """Classes of the `connection_pool` of such clients, where it tells them from those of another engine."""
    takes_lists: bool = False
    """`factory_of_several` takes several targets, each an Address or a client."""
    extra: str = ""
    """The extra of Gripfast that installs its driver."""
    options: Mapping[str, Option] = {}
    """Those of its own, besides the common ones."""
    more_options: str = ""
    """In words: what else it takes, if only its driver can tell."""
    capabilities: Capabilities | None = None
    """None if they depend on options."""
    doctor: str = ""
    """The module by which `gripfast doctor` judges a deployment: it has `examine(factory, terms)`, see
    `stores/doctor.py`. Empty: only that a lock can be used, and how fast, is judged."""
    builds_on: str = ""
    """The engine whose folder it uses; it uses no other."""

    def load(self) -> Any:
        """The factory's module."""
        return loaded(self.factory, self.extra)


def loaded(module: str, extra: str) -> Any:
    """The error for a missing driver names the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("gripfast"):
            raise
        from gripfast.extras import how_to_install

        raise ConfigurationError(
            f"this store needs {error.name}, which is not installed: {how_to_install(extra)}"
        ) from None


class Address(NamedTuple):
    """A URL, and the options in its query."""

    url: SplitResult
    options: dict[str, Any]


class AioStores(NamedTuple):
    store: Store
    aside: Store
    """The same engine in the blocking colour, for clean-ups that must work when the loop no longer runs."""


class StoreFactory(Protocol):
    """Checked settings of one engine, no I/O yet. Each client and each forked child makes its own stores from it."""

    where: str
    """What to call the engine in messages; never with a password."""
    capabilities: Capabilities
    request_timeout: float = 5.0
    """For clients that do not set one."""
    max_ttl: float = rules.TTL_MAX
    """What the engine is prepared for; a larger ttl is refused."""
    prefix: str = ""
    """What goes before the names of clients that do not set one."""
    once_needs: str = ""
    """The options that `once()` needs there and that are not set: without them, what is done could be forgotten."""

    def blocking(self, request_timeout: float) -> Store: ...

    def aio(self, request_timeout: float) -> AioStores: ...


def specs(scheme: str = "") -> Iterator[StoreSpec]:
    """Those of this package, the one that the scheme is called after first; then those of other packages."""
    for folder in sorted(BUILT_IN, key=lambda folder: not (scheme.startswith(folder) or scheme.endswith(folder))):
        yield importlib.import_module(f"{__name__}.{folder}.spec").SPEC
    yield from _of_other_packages()


def spec_for(scheme: str) -> StoreSpec:
    """Of a URL. Most schemes begin with the name of their folder, as `rediss` does: then no other spec is loaded. What
    stands behind a plus is part of a scheme (`redis+sentinel`), or names a driver."""
    scheme = scheme.lower()
    engine, _, driver = scheme.partition("+")
    for spec in specs(scheme):
        if scheme in spec.schemes or (engine in spec.schemes and bool(driver) and spec.names_driver):
            return spec
    raise ConfigurationError(f"unknown scheme {scheme!r}: a URL starts with one of {', '.join(schemes())}")


def spec_of(client: object) -> StoreSpec:
    """Of an engine's own client. Its pool may tell more than its own class."""
    kinds, pools = _kinds(client), _kinds(getattr(client, "connection_pool", None))
    for spec in sorted(specs(), key=lambda spec: not pools & set(spec.pools)):
        if pools & set(spec.pools) or kinds & set(spec.clients):
            return spec
    known = ", ".join(kind for spec in specs() for kind in spec.clients)
    raise ConfigurationError(
        f"connect() does not know a {type(client).__module__}.{type(client).__qualname__}: "
        f"pass a URL such as sqlite:///locks.db, or an object of one of these classes: {known}"
    )


def _kinds(thing: object) -> set[str]:
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(thing).__mro__}


def spec_of_lists() -> StoreSpec:
    """Of several targets together."""
    return next(spec for spec in specs("redlock") if spec.takes_lists)


def schemes() -> list[str]:
    """Of all engines, as a URL starts with them."""
    return [f"{scheme}://" for spec in specs() for scheme in spec.schemes]


@functools.cache
def _of_other_packages() -> list[StoreSpec]:
    from importlib.metadata import entry_points

    built_in = {f"{__name__}.{folder}.spec" for folder in BUILT_IN}
    found = [_loaded(point) for point in entry_points(group=GROUP) if point.module not in built_in]
    return [spec for spec in found if spec is not None]


def _loaded(point: Any) -> StoreSpec | None:
    """A package that is broken costs its own engine alone."""
    try:
        spec = point.load()
    except Exception as error:
        spec = error
    if isinstance(spec, StoreSpec):
        return spec
    import logging  # only for this

    message = "can't use the store %s of another package: %s gave %r, not a StoreSpec. Reinstall or remove that package"
    logging.getLogger("gripfast.client").warning(message, point.name, point.value, spec)
    return None
