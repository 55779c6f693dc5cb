"""The page of `gripfast serve`: what is held and waited for, live. It needs the extra `gripfast[serve]`.

access     who may look, and which requests come from the page itself
listening  the address: what may be served there, and the socket
changes    from one scan to the next: what a page must be told
feed       one scan for all viewers, and none while nobody looks
app        what is answered under which path
metrics    the same figures for Prometheus
server     runs all this until it is told to end
static/    the page: HTML, CSS and JavaScript as they are sent; nothing builds them

What is shown was chosen by others: names, labels, hosts, owners. Any of it may be an attack, stored until somebody
looks. So it leaves here as JSON alone, and the page puts it into text nodes alone. The policy that is sent with every
answer (`app.HEADERS`) lets the browser refuse everything else: inline scripts and styles, other servers, frames.

A page of a local address can be reached by every web site that its reader visits. Four things keep them out: requests
must name this server (`Host`: otherwise a site could let its own name point here), they must come from this page
(`Origin`, `Sec-Fetch-Site`, and a header that no form can send), they must carry the cookie, which no other site's
requests carry (`SameSite=Strict`), and without --allow-break there is nothing that they could change.
"""
