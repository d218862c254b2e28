"""What a server has done since it was started, in its own count."""

import re
import urllib.request
from contextlib import suppress
from dataclasses import dataclass

_COUNTED = re.compile(r"^llamacpp:(\w+) ([0-9.e+]+)$", re.MULTILINE)
_LOOK_SEC = 5.0


@dataclass(frozen=True)
class Speed:
    """Tokens that were read (without those still in memory) and written, and how many a second; None: none yet."""

    read: int
    written: int
    written_per_sec: float | None

    def __str__(self) -> str:
        rate = f", {self.written_per_sec:.1f} a second while it wrote" if self.written_per_sec is not None else ""
        return f"{self.read} tokens read, {self.written} written{rate}"


def speed(url: str, token: str) -> Speed | None:
    """What the server at `url` tells; None when it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    asked = urllib.request.Request(  # noqa: S310  it is http
        f"{url}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with suppress(OSError, ValueError), opener.open(asked, timeout=_LOOK_SEC) as answer:
        found = {name: float(value) for name, value in _COUNTED.findall(answer.read().decode())}
        written, seconds = found.get("tokens_predicted_total", 0.0), found.get("tokens_predicted_seconds_total", 0.0)
        return Speed(int(found.get("prompt_tokens_total", 0)), int(written), written / seconds if seconds else None)
    return None
