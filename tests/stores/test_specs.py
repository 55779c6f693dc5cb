"""What a store's spec says is what everybody else goes by: the registry, the options, the packaging, the errors."""

import importlib
import logging
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

import gripfast
from gripfast import ConfigurationError, stores
from gripfast.stores import BUILT_IN, GROUP, StoreSpec, schemes, spec_for, spec_of, spec_of_lists, specs
from gripfast.stores.options import COMMON, Option, check, from_url, hint
from support.pages import ROOT, page

SPECS = list(specs())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
each_spec = pytest.mark.parametrize("spec", SPECS, ids=[spec.name for spec in SPECS])


def test_the_specs_of_this_package_are_those_of_its_folders_and_of_its_entry_points() -> None:
    folders = {path.parent.name for path in (ROOT / "src/gripfast/stores").glob("*/__init__.py")}
    assert set(BUILT_IN) == folders
    assert PROJECT["entry-points"][GROUP] == {name: f"gripfast.stores.{name}.spec:SPEC" for name in BUILT_IN}


def test_names_schemes_and_clients_belong_to_one_spec_each() -> None:
    for taken in (
        [spec.name for spec in SPECS],
        [scheme for spec in SPECS for scheme in spec.schemes],
        [client for spec in SPECS for client in spec.clients],
    ):
        assert len(taken) == len(set(taken))


@each_spec
def test_a_factory_has_what_its_spec_says(spec: StoreSpec) -> None:
    module = spec.load()
    assert hasattr(module, "factory") == bool(spec.schemes)
    assert hasattr(module, "factory_of_several") == spec.takes_lists
    assert hasattr(module, "factory_of") >= bool(spec.clients)


@each_spec
def test_a_spec_names_an_extra_and_options_that_are_told_in_one_line(spec: StoreSpec) -> None:
    assert not spec.extra or spec.extra in PROJECT["optional-dependencies"]
    for name, option in {**COMMON, **spec.options}.items():
        assert re.fullmatch("[a-z_]+", name)
        assert option.meaning
        assert "\n" not in option.meaning
        assert bool(option.choices) == (option.kind == "choice")
    assert not COMMON.keys() & spec.options.keys()


@pytest.mark.parametrize("scheme, loaded", [("sqlite", "sqlite"), ("rediss", "redis"), ("postgresql", "postgres sql")])
def test_no_spec_loads_a_driver_and_most_schemes_load_one_spec(scheme: str, loaded: str) -> None:
    code = (
        f"import sys; from gripfast import stores; stores.spec_for('{scheme}')\n"
        "print(*sorted(m.split('.')[2] for m in sys.modules if m.endswith('.spec')))\n"
        "print('importlib.metadata' in sys.modules)\n"
        "list(stores.specs()); print(*{'redis', 'psycopg', 'pymysql', 'kazoo', 'sqlalchemy'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [loaded, "False", ""]


@pytest.mark.parametrize("scheme, name", [("redis", "redis"), ("REDISS", "redis"), ("postgresql+asyncpg", "postgres")])
def test_a_scheme_leads_to_its_spec(scheme: str, name: str) -> None:
    assert spec_for(scheme).name == name


@pytest.mark.parametrize("scheme", ["gopher", "redis+hiredis", "", "sql"])
def test_an_unknown_scheme_is_told_with_those_there_are(scheme: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        spec_for(scheme)
    assert all(f"{each}" in str(told.value) for each in schemes())


def test_a_client_leads_to_its_spec_also_if_its_class_is_the_callers_own() -> None:
    redis = importlib.import_module("redis")
    assert spec_of(type("Mine", (redis.Redis,), {})()).name == "redis"
    with pytest.raises(ConfigurationError, match=r"redis\.client\.Redis.*KazooClient.*Engine"):
        spec_of(object())


def test_a_list_leads_to_the_one_that_takes_lists() -> None:
    assert spec_of_lists().name == "redlock"
    assert [spec.name for spec in SPECS if spec.takes_lists] == ["redlock"]


# Other packages' ------------------------------------------------------------------------------------------------------


class Point:
    def __init__(self, name: str, made: Any) -> None:
        self.name, self.module, self.value, self._made = name, f"other.{name}", f"other.{name}:SPEC", made

    def load(self) -> Any:
        if isinstance(self._made, Exception):
            raise self._made
        return self._made


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Any:
    def declare(*points: Point) -> None:
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: list(points))
        stores._of_other_packages.cache_clear()

    yield declare
    monkeypatch.undo()
    stores._of_other_packages.cache_clear()


def test_a_spec_of_another_package_is_found_after_our_own(others: Any) -> None:
    mine = StoreSpec("mine", "other.factory", schemes=("mine", "redis"), clients=("builtins.bytes",))
    others(Point("mine", mine))
    assert spec_for("mine") is spec_of(b"") is mine
    assert spec_for("redis").name == "redis"
    assert "mine://" in schemes()


@pytest.mark.parametrize("made", [ImportError("no such driver"), object()])
def test_a_package_that_is_broken_costs_its_own_engine_alone(
    others: Any, made: object, caplog: pytest.LogCaptureFixture
) -> None:
    others(Point("broken", made), Point("mine", StoreSpec("mine", "other.factory", schemes=("mine",))))
    assert spec_for("mine").name == "mine"
    assert [(each.levelno, "broken" in each.getMessage()) for each in caplog.records] == [(logging.WARNING, True)]


# Options --------------------------------------------------------------------------------------------------------------

KNOWN = {
    "patience": Option("seconds", "how long"),
    "most": Option("number", "how many"),
    "strict": Option("bool", "whether"),
    "mode": Option("choice", "which", ("one", "two")),
    "label": Option("text", "what"),
}


def test_texts_of_a_url_become_what_the_option_is() -> None:
    given = {"patience": "1.5s", "most": "3", "strict": "Yes", "mode": "two", "label": "7", "unknown": "8"}
    options = from_url(given, KNOWN)
    check(options, KNOWN)
    assert options == {"patience": 1.5, "most": 3, "strict": True, "mode": "two", "label": "7", "unknown": "8"}


@pytest.mark.parametrize(
    "name, text, told",
    [
        ("patience", "soon", "patience must be a duration like 30 (seconds), 1.5s, 500ms, 2m, 1h or 7d, not 'soon'"),
        ("most", "1.5", "most must be a whole number, not '1.5'"),
        ("strict", "maybe", "strict must be true or false, not 'maybe'"),
        ("mode", "three", "mode must be one of one, two, not 'three'"),
    ],
)
def test_a_text_that_is_none_of_those_is_refused(name: str, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        check(from_url({name: text}, KNOWN), KNOWN)


def test_a_switch_is_read_wherever_it_comes_from() -> None:
    options: dict[str, Any] = {"strict": "0"}
    check(options, KNOWN)
    assert options == {"strict": False}
    with pytest.raises(ConfigurationError, match="true or false"):
        check({"strict": 2}, KNOWN)


@pytest.mark.parametrize(
    "unknown, told",
    [
        ({"mod"}, "; did you mean mode?"),
        ({"mod", "lable"}, "; did you mean label and mode?"),
        ({"bogus"}, "; known options: label, mode, most, patience, strict"),
    ],
)
def test_an_unknown_option_is_told_with_what_may_have_been_meant(unknown: set[str], told: str) -> None:
    assert hint(unknown, KNOWN) == told


@pytest.mark.parametrize(
    "url, meant",
    [
        ("memory://?prefx=a", "prefix"),
        ("redlock://a,b,c?restart_graze=1", "restart_grace"),
        ("mysql://h/d?ssl_verify_certs=1", "ssl_verify_cert"),
        ("zookeeper://h?use_tls=1", "use_ssl"),
    ],
)
def test_connect_tells_what_may_have_been_meant(url: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"unknown option for .*; did you mean {meant}\?"):
        gripfast.connect(url)


@pytest.mark.parametrize(
    "scheme", ["redis", "rediss", "redlock", "postgresql", "mysql", "sqlite", "memory", "zookeeper", "etcd"]
)
def test_a_scheme_that_ends_in_a_plus_names_no_driver(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match="unknown scheme"):
        spec_for(f"{scheme}+")


# -- messages and pages that list stores -------------------------------------------------------------------------------

SERVERS = {
    "Redis": "redis://host",
    "ZooKeeper": "zookeeper://h1,h2,h3",
    "etcd": "etcd://h1,h2,h3",
    "PostgreSQL": "postgresql://host/db",
    "MySQL": "mysql://host/db",
}


def able(capability: str) -> set[str]:
    """The servers that have it, by the names that users read."""
    clients = {name: gripfast.connect(url) for name, url in SERVERS.items()}
    return {name for name, client in clients.items() if getattr(client.capabilities, capability)}


@pytest.mark.parametrize(
    ("capability", "call"),
    [
        ("once", lambda client: client.once("job", keep=1)),
        ("keeps", lambda client: client.lock("job", min_hold=1)),
        ("hands_over", lambda client: client.adopt("text")),
        ("semaphores", lambda client: client.semaphore("job", 3)),
        ("rwlocks", lambda client: client.rwlock("job")),
    ],
)
def test_who_lacks_something_is_told_of_every_store_that_has_it(capability: str, call: Callable[[Any], object]) -> None:
    with gripfast.connect("redlock://h1,h2,h3") as client, pytest.raises(ConfigurationError) as refused:
        call(client)
    told = str(refused.value).removeprefix(client.where)
    assert {name for name in SERVERS if name in told} == able(capability)


@pytest.mark.parametrize("name", ["recipes", "celery", "apscheduler", "zh/recipes"])
def test_a_page_that_lists_the_stores_with_once_lists_every_one(name: str) -> None:
    (line,) = re.findall(r"^- .*`once(?:\(\))?`.*`mode=lease`.*$", page(name), re.MULTILINE)
    assert {each for each in ("Redis", "etcd") if each in line} == able("once") - {"PostgreSQL", "MySQL"}
