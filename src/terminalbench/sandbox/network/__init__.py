"""The network of a sandbox: a relay outside it is its only way out.

client           the caller's side: start the relay, open a way for a sandbox, change its policy
relay            the relay process: one per caller, serves the sockets that were made in the sandboxes
egress_proxy     the way of one sandbox: what arrives, what is refused, limits
proxy_protocols  what arrives: requests to the HTTP proxy, questions for names, TLS hellos
upstream         to the host that was asked for: the address that was judged, or the host's own proxy; sockets joined
policy           who may be reached: names, and kinds of addresses
egress           the log of a trial, bounded
trial            the network of one trial through its phases

All but `client` and `trial` is standard library only: the relay runs isolated from the caller's packages.
"""
