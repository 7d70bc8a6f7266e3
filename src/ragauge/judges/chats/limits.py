"""Parse the headers in which an endpoint says how long to wait before the next request."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
KINDS = ("-requests", "-tokens", "")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait before a retry; None if the headers do not say.

    Checked in this order: `retry-after-ms`, `Retry-After` (seconds or a date), and the reset time of an exhausted
    limit.

    >>> retry_after({"retry-after": "2.5"}), retry_after({"retry-after-ms": "20"}), retry_after({})
    (2.5, 0.02, None)
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = (headers.get(name) or "").strip()
        if not text:
            continue
        try:
            return max(0.0, float(text) * unit)
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
        except ValueError:  # Neither a number nor a date.
            continue
    return used_up(headers) or None


def used_up(headers: Mapping[str, str]) -> float:
    """Return the seconds until an exhausted rate limit is reset; 0 if there is none.

    >>> used_up({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"})
    360.0
    >>> used_up({"x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "6m0s"})
    0.0
    """
    longest = 0.0
    for kind in KINDS:
        if (headers.get(f"x-ratelimit-remaining{kind}") or "").strip() == "0":
            longest = max(longest, duration(headers.get(f"x-ratelimit-reset{kind}") or "") or 0.0)
    return longest


def duration(text: str) -> float | None:
    """Parse a duration and return it in seconds; None if it is not one.

    Accepted are `20ms`, `1s`, `6m0s`, a number of seconds, and a Unix time in seconds or milliseconds.

    >>> duration("1h2m3.5s"), duration("20ms"), duration("7"), duration("soon")
    (3723.5, 0.02, 7.0, None)
    """
    text = text.strip()
    parts = DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * UNITS[unit] for number, unit in parts)
    try:
        number = float(text)
    except ValueError:
        return None
    if number > 1e11:
        number /= 1000
    return max(0.0, number - time.time()) if number > 1e9 else max(0.0, number)
