"""What is told to those who ask for `lazy_release` where there is none."""

import pytest

import gripfast
from gripfast import ConfigurationError


@pytest.fixture
def client() -> gripfast.Client:
    """It is never asked for anything."""
    return gripfast.connect("redis://localhost:1")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda client: client.semaphore("job", 3, lazy_release=True), "lock() and locks() have it"),
        (lambda client: client.rwlock("job", lazy_release=True), "lock() and locks() have it"),
        (lambda client: client.election("job", lazy_release=True), "lock() and locks() have it"),
        (lambda client: client.once("job", keep=60, lazy_release=True), "confirm that it was done"),
        (lambda client: client.lock("job", async_release=True), "write lazy_release=True"),
        (lambda client: client.lock("job", lazy_realease=True), "did you mean 'lazy_release'?"),
    ],
    ids=["semaphore", "rwlock", "election", "once", "another word", "a typing error"],
)
def test_what_else_has_it_or_is_called_otherwise(client: gripfast.Client, call: object, words: str) -> None:
    with pytest.raises(TypeError) as told:
        call(client)  # type: ignore[operator]
    assert words in str(told.value)


def test_it_is_true_or_false(client: gripfast.Client) -> None:
    with pytest.raises(ConfigurationError, match="must be True or False"):
        client.lock("job", lazy_release=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="min_hold"):
        client.locked("job", lazy_release=True, min_hold=5)


@pytest.mark.parametrize("url", ["memory://", "sqlite:///locks.db"])
def test_a_store_without_it_says_what_to_write(url: str) -> None:
    for make in (lambda c: c.lock("job", lazy_release=True), lambda c: c.locks("a", "b", lazy_release=True)):
        with pytest.raises(ConfigurationError) as told:
            make(gripfast.connect(url))
        assert "only on Redis and Redlock" in str(told.value)
        assert "lazy_release=client.capabilities.lazy_release" in str(told.value)
