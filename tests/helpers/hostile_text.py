"""Texts and names that try to break a page: scripts, markup, control characters, names of JavaScript properties."""

from __future__ import annotations

HOSTILE = (
    "<script>window.__x = 1; alert(1)</script>",
    '</script><img src=x onerror="window.__x = 2; alert(2)">',
    "<!-- <script> ]]> --!>",
    "${alert(3)} {{ 7*7 }} {% raw %} `${window.__x = 3}`",
    "line\u2028paragraph\u2029 \u202eright to left\u202c \u0007 &lt;b&gt; &amp;",
    "\"'><svg onload=alert(4)> javascript:alert(5)",
)
NAMES = ("../../x", "a\"b'c<b>", "__proto__", "datum.value", "constructor")
