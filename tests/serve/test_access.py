"""Who may look, and which requests are the page's own: the rules, without a server."""

from ipaddress import ip_network

import pytest
from starlette.datastructures import Headers

from gripfast.errors import ConfigurationError
from gripfast.serve.access import SESSION, Access, site_of
from gripfast.serve.listening import address_of, bind, check, site_at

TOKEN = "t" * 40
NOBODY = Headers({})
NOW = 1_000_000.0


def named(*users: str) -> Headers:
    return Headers(raw=[(b"x-user", user.encode()) for user in users])


def test_a_cookie_is_good_for_a_while_and_for_its_token_alone() -> None:
    access = Access(TOKEN)
    cookie = access.cookie(NOW)
    assert access.user(NOBODY, cookie, None, NOW) == "the bearer of the token"
    assert access.user(NOBODY, cookie, None, NOW + SESSION + 1) is None
    assert Access("u" * 40).user(NOBODY, cookie, None, NOW) is None


@pytest.mark.parametrize("cookie", ["", ".", "9999999999", "9999999999.", "²." + "0" * 64, "x.y", "9" * 5000 + ".é"])
def test_a_cookie_that_was_made_up_is_none(cookie: str) -> None:
    assert Access(TOKEN).user(NOBODY, cookie, None, NOW) is None


def test_nobody_can_make_a_cookie_good_for_longer() -> None:
    until, _, signature = Access(TOKEN).cookie(NOW).partition(".")
    assert Access(TOKEN).user(NOBODY, f"{int(until) + 60}.{signature}", None, NOW) is None


@pytest.mark.parametrize("said", ["", "Bearer ", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer é"])
def test_a_wrong_token_is_none(said: str) -> None:
    assert Access(TOKEN).user(Headers({"authorization": said}), None, None, NOW) is None


def test_a_proxy_names_its_user() -> None:
    access = Access(header="x-user")
    assert access.user(named("alice"), None, "127.0.0.1", NOW) == "alice"
    assert access.user(NOBODY, None, "127.0.0.1", NOW) is None
    assert access.user(named(" "), None, "127.0.0.1", NOW) is None


def test_two_names_are_none() -> None:
    """The visitor has sent one, and the proxy has added its own."""
    assert Access(header="x-user").user(named("mallory", "alice"), None, None, NOW) is None


@pytest.mark.parametrize(
    ("peer", "user"),
    [("10.1.2.3", "alice"), ("::ffff:10.1.2.3", "alice"), ("10.2.0.1", None), ("::1", None), (None, None)],
)
def test_a_name_counts_from_a_proxy_alone(peer: str | None, user: str | None) -> None:
    access = Access(header="x-user", proxies=(ip_network("10.1.0.0/16"),))
    assert access.user(named("alice"), None, peer, NOW) == user


def test_without_token_and_header_everybody_may_look() -> None:
    assert Access().user(NOBODY, None, None, NOW) == "anybody"
    assert not Access().is_token("")


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("https://locks.example.com", "https://locks.example.com", "/"),
        ("https://Locks.example.com:443/", "https://locks.example.com", "/"),
        ("http://ops.example.com:8080/locks", "http://ops.example.com:8080", "/locks/"),
        ("https://[2001:db8::1]:8443/", "https://[2001:db8::1]:8443", "/"),
    ],
)
def test_a_public_url_is_read(url: str, origin: str, path: str) -> None:
    site = site_of(url)
    assert (site.origins, site.path, site.url) == ((origin,), path, origin + path)
    assert site.is_secure == url.startswith("https")
    assert site.has_host(origin.partition("://")[2])
    assert not site.has_host("evil.example.com")


@pytest.mark.parametrize(
    "url", ["locks.example.com", "ftp://x/", "https://", "https://a:b@x/", "https://x/?y", "https://x/#y"]
)
def test_a_public_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="such as https://"):
        site_of(url)


def own_headers(**others: str | None) -> dict[str, str]:
    """Of a request that the page sends, but for these."""
    headers: dict[str, str | None] = {
        "origin": "https://locks.example.com",
        "x-gripfast": "1",
        "content-type": "application/json",
        "sec-fetch-site": "same-origin",
        **{name.replace("_", "-"): value for name, value in others.items()},
    }
    return {name: value for name, value in headers.items() if value is not None}


def test_the_page_may_change_something() -> None:
    assert site_of("https://locks.example.com/").unfit(own_headers()) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"origin": None},
        {"origin": "null"},
        {"origin": "https://evil.example.com"},
        {"origin": "http://locks.example.com"},
        {"origin": "https://locks.example.com.evil.example"},
        {"x_gripfast": None},
        {"content_type": "text/plain"},
        {"content_type": None},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_no_other_site_and_no_form_may(wrong: dict[str, str | None]) -> None:
    assert site_of("https://locks.example.com/").unfit(own_headers(**wrong))


@pytest.mark.parametrize(
    ("text", "is_local"),
    [("127.0.0.1:80", True), ("[::1]:0", True), ("localhost:1", True), ("unix:/run/x", True), ("0.0.0.0:1", False),
     ("[::]:1", False), ("192.0.2.1:8023", False)],
)  # fmt: skip
def test_addresses_are_read(text: str, is_local: bool) -> None:
    assert address_of(text).is_local == is_local


@pytest.mark.parametrize(
    "text", ["", "8023", "127.0.0.1", "example.com:80", "127.0.0.1:", "127.0.0.1:65536", "unix:", "::1:²"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 127\.0\.0\.1:8023"):
        address_of(text)


ELSEWHERE, HERE = address_of("0.0.0.0:8023"), address_of("127.0.0.1:8023")
PUBLIC = "https://locks.example.com/"


@pytest.mark.parametrize(
    ("address", "access", "public_url", "what_to_do"),
    [
        (ELSEWHERE, Access(), PUBLIC, "leave --open out"),
        (ELSEWHERE, Access(header="x-user"), PUBLIC, "--proxy"),
        (ELSEWHERE, Access(TOKEN), None, "--public-url"),
        (address_of("unix:/run/x"), Access(header="x-user"), None, "--public-url"),
    ],
)
def test_what_would_be_open_to_others_is_refused(
    address: object, access: Access, public_url: str | None, what_to_do: str
) -> None:
    with pytest.raises(ConfigurationError, match=what_to_do):
        check(address, access, public_url)  # type: ignore[arg-type]


def test_what_is_protected_or_local_is_served() -> None:
    check(HERE, Access(), None)
    check(HERE, Access(header="x-user"), None)
    check(ELSEWHERE, Access(TOKEN), PUBLIC)
    check(ELSEWHERE, Access(header="x-user", proxies=(ip_network("10.0.0.0/8"),)), PUBLIC)
    check(address_of("unix:/run/x"), Access(header="x-user"), PUBLIC)


def test_an_address_that_is_taken_is_told() -> None:
    with bind(address_of("127.0.0.1:0")) as bound:
        bound.listen()
        port = bound.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"can't listen on 127.0.0.1:{port}: .*--listen"):
            bind(address_of(f"127.0.0.1:{port}"))


def test_a_local_page_is_known_by_the_names_of_this_machine_and_its_proxy() -> None:
    with bind(HERE_ANY := address_of("127.0.0.1:0")) as bound:
        port = bound.getsockname()[1]
        assert site_at(HERE_ANY, bound, None).origins[0] == f"http://127.0.0.1:{port}"
        site = site_at(HERE_ANY, bound, PUBLIC)
        assert site.url == PUBLIC
        assert all(map(site.has_host, ("locks.example.com", f"localhost:{port}", f"[::1]:{port}")))
        assert not site.has_host(f"evil.example.com:{port}")
