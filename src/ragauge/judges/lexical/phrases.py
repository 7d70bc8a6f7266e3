"""What a sentence claims, by its words: its phrases, without those that commit themselves to nothing."""

from __future__ import annotations

import re

from ragauge.judges.lexical.words import words

LEAST = 2
"""A claim has at least so many words that tell something, unless its sentence has fewer."""
CUT = re.compile(
    r"""[,;:\u2013\u2014()]\s+ | \s[-\u2013\u2014]\s
      | \s(?=(?:and|but|or|while|which|who|whose|where|when|because|although|though|that|as\ well\ as|including|such\ as
               |with|by|from|for|in|on|at|to|of|as|after|before|during)\s)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Where a sentence may come apart: at punctuation, and before words that add another detail."""
TURN = re.compile(r"(?<=[,;.])\s+(?=(?:but|however|yet|though|although|still)\b)|(?<=;)\s+|\s+(?=but\s)", re.IGNORECASE)
"""Where a sentence that began as a refusal may go on to claim something after all."""

_SOURCE = r"(?:contexts?|documents?|passages?|texts?|sources?|articles?|information|excerpts?|contents?|materials?)"
_SAY = (
    r"(?:contain|mention|provide|specif|include|address|say|state|answer|discuss|cover|indicate|give|describe|detail)"
)
_NOT = r"(?:not|n't|cannot)"
REFUSALS = (
    rf"\b(?:i|we) (?:\w+ )?(?:do|did|ca|can|could|am|are|was|were|would)?(?: ?{_NOT}|'m not|'re not) (?:\w+ ){{0,3}}"
    r"(?:have|know|information|answer|sure|find|found|able|aware|familiar|certain|details?|data|access|help|assist"
    r"|provide|determine|say|tell|confirm|knowledge|comment|understand|advise|explain|recommend|do (?:that|this|so))\b",
    r"\b(?:i|we) neither (?:have|know)\b",
    r"\b(?:i'm|i am|we're|we are) (?:\w+ )?(?:sorry|afraid|unable|unsure|unaware)",
    r"\b(?:i|we) (?:\w+ )?(?:lack|have no|could find no|found no|apologi[sz]e)",
    rf"\b{_SOURCE}(?: \w+){{0,4}} (?:do|does|did|is|are|was|were|has|have)?(?: )?{_NOT} (?:\w+ ){{0,3}}"
    rf"(?:{_SAY}|available|enough|sufficient|clear)",
    rf"{_NOT} (?:\w+ ){{0,2}}(?:mentioned|specified|stated|provided|available|given|clear|discussed|found|covered)"
    rf" (?:\w+ ){{0,2}}(?:in|by|from) (?:\w+ ){{0,3}}{_SOURCE}",
    r"\bno (?:\w+ ){0,3}(?:information|mention|details?|data|answer) (?:\w+ )?(?:about|on|of|regarding|in|is|was|to|for"
    r"|available|provided|found)",
    r"\b(?:insufficient|not enough|without (?:more|further|additional)) (?:\w+ )?(?:information|context|data|details?)",
    r"\bcan(?:not|'t| not) be (?:answered|determined)\b",
    r"\bunanswerable\b",
    r"\bno (?:idea|clue)\b",
    r"\bno answer\b",
)
"""Ways to say that one has no answer; patterns over a sentence in lower case."""
COURTESIES = (
    r"\blet me know\b",
    r"\bfeel free to\b",
    r"\bhope (?:this|that|it) helps\b",
    r"\b(?:happy|glad) to (?:help|assist)\b",
    r"\bhow (?:can|may) i (?:help|assist)\b",
    r"\b(?:thank you|thanks|you're welcome|you are welcome|great question|good question)\b",
    r"^\W*(?:hi|hello|hey|sure|certainly|sorry|goodbye|bye)\b[^.,]{0,20}\W*$",
    r"\b(?:could|can|would|please) (?:you )?(?:please )?(?:\w+ )?(?:clarify|specify|rephrase|elaborate)\b",
    r"\bplease (?:provide|share|give) (?:me )?(?:with )?(?:more|further|additional)\b",
)
"""Ways to be polite, which claim nothing either."""
REFUSAL = re.compile("|".join(REFUSALS))
COURTESY = re.compile("|".join(COURTESIES))
INTERJECTION = re.compile(
    r"^\s*(?:yes|no|yeah|well|sure|ok|okay|indeed|certainly|not really|actually)\s*[,.!:]\s+", re.IGNORECASE
)
"""What a sentence may begin with; `No, she did` negates a question, not itself."""
TOLD = re.compile(r"\b(?:do|did) you know\b|\bdid you hear\b")
"""Questions that tell something all the same."""


def refuses(text: str) -> bool:
    """Whether a text says somewhere that it has no answer.

    >>> refuses("I'm sorry, I do not have any information on that."), refuses("The plan does not include dental care.")
    (True, False)
    """
    return REFUSAL.search(_plain(text)) is not None


def commits(sentence: str) -> bool:
    """Whether a sentence claims anything: a refusal, a question, a courtesy and a bare `Yes.` do not."""
    plain = _plain(sentence)
    asks = plain.rstrip("\"' )").endswith(("?", "\uff1f")) and not TOLD.search(plain)
    return (
        not asks
        and not REFUSAL.search(plain)
        and not COURTESY.search(plain)
        and any(w.kind != "stop" for w in words(sentence))
    )


def claims(sentence: str) -> list[str]:
    """The claims of a sentence: its phrases, each with at least two words that tell something.

    >>> claims("Arthur's Magazine was a literary periodical published in Philadelphia in the 19th century.")
    ["Arthur's Magazine was a literary periodical published", 'in Philadelphia in the 19th century.']
    >>> claims("I do not know, but it was built in 1987."), claims("Yes.")
    (['but it was built in 1987.'], [])
    """
    bare = INTERJECTION.sub("", sentence)
    return [phrase for part in TURN.split(bare) if commits(part) for phrase in _phrases(part)]


def _phrases(part: str) -> list[str]:
    edges = [0, *(match.end() for match in CUT.finditer(part)), len(part)]
    found: list[str] = []
    begun = 0
    for edge in edges[1:]:
        if sum(word.tells for word in words(part[begun:edge])) >= LEAST:
            found.append(part[begun:edge])
            begun = edge
    if begun < len(part):
        rest = part[begun:]
        found = [*found[:-1], found[-1] + rest] if found else [rest]
    return [one.strip() for one in found]


def _plain(text: str) -> str:
    return " ".join(text.lower().replace("\u2019", "'").split())
