"""The network of a sandbox: a relay outside it is its only way out.

client      the caller's side: start the relay, open a way for a sandbox, change its policy
relay       the relay process: one per caller, serves the sockets that were made in the sandboxes
box         the way of one sandbox: what arrives, what is refused, limits
doors       what arrives in another form than a plain connection: the HTTP proxy, questions for names
tunnel      two sockets joined: bytes counted, idle ones closed, the TLS name looked at
upstream    to the host that was asked for: the address that was judged, or the host's own proxy
policy      who may be reached; pure
addresses   what kind of address it is: this machine, a private network, or public
egress      the log of a trial, bounded

All but `client` is standard library only: the relay runs isolated from the caller's packages.
"""
