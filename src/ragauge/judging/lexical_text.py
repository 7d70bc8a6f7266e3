"""Text processing of the lexical judge: words, stems, numbers, claims, word lists."""

from __future__ import annotations

import functools
import re
import unicodedata
from html import unescape
from typing import NamedTuple


def _split_words(text: str) -> list[str]:
    return text.split()


STOP_WORDS = frozenset(
    _split_words("""
    a about above after again all also although am an and any anyone anything are as at be became because become
    becomes been before being below between both but by can could d did do does doing done down due during each
    either else especially etc even ever every for from further get gets getting give given go goes going got
    had has have having he hence her here hers herself him himself his how however if in including indeed
    instead into is it its itself just let like ll m made make makes many may maybe might more moreover most
    much must need of off often oh ok okay on once one only or other others otherwise out over own per perhaps
    quite rather re really s same shall she should since so some someone something such t than that the their
    theirs them themselves then there therefore these they thing things this those though through thus to
    together too toward towards under until up upon use used uses using usually ve very via was way ways well
    were what whatever when where whereas whether which while who whom whose why will with within would yes yet
    """)
)
"""Function words without content."""

PERSONAL_WORDS = frozenset(
    _split_words("i me my mine myself we us our ours ourselves you your yours yourself yourselves")
)
"""Words for the speaker or the reader: rare in retrieved texts, frequent in small talk."""

GENERAL_WORDS = _split_words("""
    able access accord accordance accordingly achieve across act actively activity actual actually add addition
    additional additionally address adjust affect aid aim allow almost along already alternatively always amount
    another answer appear apply approach appropriate area around article aspect assist associated attempt
    available avoid aware based basic basis begin benefit bring broad broadly call carry case category cause
    certain certainly change characteristic choice choose clear clearly combination common commonly complete
    completely comprehensive concern condition connection consequently consider considerable consist contain
    context continue contribute correct corresponding cover create creation crucial current currently depend
    describe description design designed despite detail detailed determine develop differ different directly
    discuss discussion distinct diverse documents earlier easily easy effect effective effectively effort
    element emphasize enable encounter end enhance enough ensure entire entirely essential essentially establish
    eventually exact exactly example except exist experience explain explanation extensive extent face fact
    factor far feature few final finally find first focus follow following form fully function furthermore
    general generally group guidance guide handle happen help helpful high highlight highly identify impact
    implement important importantly improve include increase indicate individual influence inform information
    initial initially instance intend involve issue item keep key kind known lack large largely late later lead
    learn least less level likely limit list long low main mainly maintain major manage manner matter mean
    meaning meant mention method mind minor multiple name namely necessary new notable notably note now number
    numerous obtain occur offer option order original originally overall part particular particularly passage
    perform period person place play point popular portion possible possibly potential potentially practice
    present prevent previous previously primarily primary prior problem process produce proper properly provide
    purpose put quality question quick quickly range reach ready real reason receive recent recently recommend
    reduce refer reference regard regarding regardless regular regularly relate related relation relevant remain
    remember report represent require requirement resource respective respectively respond response rest result
    role section seem select selection separate serve set several show significant significantly similar
    similarly simple simply single situation slightly small sole solely solution sometimes soon source specific
    specifically standard start state statement step still strong style subject subsequent subsequently suggest
    suitable summary support system take task tend term text time today tool top topic total traditional turn
    type typical typically ultimately understand unique unless useful user usual utilize value variety various
    vary version view whole wide widely work worth year
    """)
"""Words of any topic, which paraphrases use freely."""

NEGATION_WORDS = frozenset(
    _split_words("""
    no not never none neither nor nobody nothing nowhere cannot cant dont doesnt didnt isnt arent wasnt werent
    wont wouldnt shouldnt couldnt hasnt havent hadnt mustnt neednt
    """)
)

NUMBER_WORDS = {
    word: number
    for number, word in enumerate(
        _split_words("""
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty
    """)
    )
} | {word: 10 * tens for tens, word in enumerate(_split_words("thirty forty fifty sixty seventy eighty ninety"), 3)}
"""Numbers written as words; `one` is more often a pronoun and is a stop word first."""

ORDINAL_WORDS = {
    word: number
    for number, word in enumerate(
        _split_words("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"), 1
    )
}


KIND_WEIGHTS = {"number": 3.0, "name": 2.0, "word": 1.0, "personal": 1.0, "general": 0.5, "stop": 0.25}
"""Weight of a word by its kind. A missing number or name counts most against a claim."""

WORD_REGEX = re.compile(
    r"""\d+(?:,\d{3})+(?:\.\d+)?(?!\d) | \d+\.\d+(?![.\d]) | \d+(?:st|nd|rd|th)\b  # 1,000 and 3.5 and 2nd
      | [\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]                                    # no spaces between words: signs
      | [^\W_]+(?:['\u2019][^\W\d_]+)*
    """,
    re.VERBOSE,
)
NUMBER_REGEX = re.compile(r"(\d[\d,]*)(\.\d+)?(?:st|nd|rd|th)?")


class Word(NamedTuple):
    """A word of a text, normalised for comparison."""

    key: str
    """Normalised form used for comparison."""
    text: str
    """Original spelling."""
    kind: str
    """Kind of the word, a key of `KIND_WEIGHTS`."""
    is_negation: bool = False

    @property
    def weight(self) -> float:
        """Weight of the word by its kind."""
        return KIND_WEIGHTS[self.kind]

    @property
    def is_content(self) -> bool:
        """Whether the word has content, i.e. is not a stop word."""
        return self.kind != "stop"


@functools.lru_cache(maxsize=1 << 16)
def stem_word(word: str) -> str:
    """Remove the most common endings of a word.

    Words with equal stems are treated as equal.

    >>> [stem_word(word) for word in ("companies", "company", "stopped", "stops", "boxes", "glass", "quickly", "used")]
    ['company', 'company', 'stop', 'stop', 'box', 'glass', 'quick', 'us']
    """
    if len(word) <= 3 or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ingly", "edly", "ing", "ed", "ly"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= 2 and any(vowel in stem for vowel in "aeiouy"):
            doubled = len(stem) > 3 and stem[-1] == stem[-2] and stem[-1] not in "lsz"
            word = stem[:-1] if doubled else stem
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def normalise_number(text: str) -> str | None:
    """Normalise a number; None if the text is not a number.

    >>> [normalise_number(text) for text in ("1,000", "1000.0", "2nd", "007", "3.50", "B52")]
    ['1000', '1000', '2', '7', '3.5', None]
    """
    match = NUMBER_REGEX.fullmatch(text)
    if match is None:
        return None
    part = (match[2] or "").rstrip("0").rstrip(".")
    return (match[1].replace(",", "").lstrip("0") or "0") + part


def parse_words(text: str) -> list[Word]:
    """Split a text into words; a capital letter at its start does not mark a name.

    >>> [(word.key, word.kind) for word in parse_words("Three firms in Paris paid 1,000 dollars.")]
    [('3', 'number'), ('firm', 'word'), ('in', 'stop'), ('paris', 'name'), ('paid', 'word'), ('1000', 'number'), \
('dollar', 'word')]
    """
    words = [_classify_word(match) for match in WORD_REGEX.findall(unescape(text) if "&" in text else text)]
    if words and words[0].kind == "name" and not any(sign.isdigit() for sign in words[0].text):
        words[0] = words[0]._replace(kind="word")
    return words


@functools.lru_cache(maxsize=1 << 16)
def _classify_word(text: str) -> Word:
    plain = _fold_case_and_accents(text).replace("\u2019", "'")
    number = normalise_number(plain)
    if number is not None:
        return Word(number, text, "number")
    base, _, tail = plain.partition("'")
    if tail == "t" and base.endswith("n"):
        return Word(base, text, "stop", is_negation=True)
    plain = base if tail and len(tail) <= 2 else plain.replace("'", "")  # it's, they'll, Anna's
    for kind, listed in (("stop", NEGATION_WORDS), ("stop", STOP_WORDS), ("personal", PERSONAL_WORDS)):
        if plain in listed:
            return Word(plain, text, kind, is_negation=plain in NEGATION_WORDS)
    if plain in NUMBER_WORDS:
        return Word(str(NUMBER_WORDS[plain]), text, "number")
    if plain in ORDINAL_WORDS:
        return Word(str(ORDINAL_WORDS[plain]), text, "word")
    key = stem_word(plain)
    if key in STOP_WORDS or key in NEGATION_WORDS or key in PERSONAL_WORDS:
        key = plain  # "noted" is not "not"
    if key in _GENERAL_STEMS:
        return Word(key, text, "general")
    return Word(key, text, "name" if text[:1].isupper() or any(sign.isdigit() for sign in text) else "word")


def _fold_case_and_accents(text: str) -> str:
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(sign for sign in decomposed if not unicodedata.combining(sign))


_GENERAL_STEMS = frozenset(stem_word(word) for word in GENERAL_WORDS)


MIN_CLAIM_WORDS = 2
"""Minimum number of content words per claim, unless the sentence has fewer."""
PHRASE_BOUNDARY = re.compile(
    r"""[,;:\u2013\u2014()]\s+ | \s[-\u2013\u2014]\s
      | \s(?=(?:and|but|or|while|which|who|whose|where|when|because|although|though|that|as\ well\ as|including|such\ as
               |with|by|from|for|in|on|at|to|of|as|after|before|during)\s)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Phrase boundaries: punctuation, and words that add a detail."""
CONTRAST_BOUNDARY = re.compile(
    r"(?<=[,;.])\s+(?=(?:but|however|yet|though|although|still)\b)|(?<=;)\s+|\s+(?=but\s)", re.IGNORECASE
)
"""Positions at which a sentence that began as a refusal may continue with a claim."""

_SOURCE_NOUN = (
    r"(?:contexts?|documents?|passages?|texts?|sources?|articles?|information|excerpts?|contents?|materials?)"
)
_SOURCE_VERB = (
    r"(?:contain|mention|provide|specif|include|address|say|state|answer|discuss|cover|indicate|give|describe|detail)"
)
_NEGATION = r"(?:not|n't|cannot)"
_NO_INFORMATION = r"no (?:\w+ ){0,3}(?:information|mention|details?|data|answer|evidence)\b"
REFUSAL_PATTERNS = (
    rf"\b(?:i|we) (?:\w+ )?(?:do|did|ca|can|could|am|are|was|were|would)?(?: ?{_NEGATION}|'m not|'re not) (?:\w+ "
    rf"){{0,3}}"
    r"(?:have|know|information|answer|sure|find|found|able|aware|familiar|certain|details?|data|access|help|assist"
    r"|provide|determine|say|tell|confirm|knowledge|comment|understand|advise|explain|recommend|do (?:that|this|so))\b",
    r"\b(?:i|we) neither (?:have|know)\b",
    r"\b(?:i'm|i am|we're|we are) (?:\w+ )?(?:sorry|afraid|unable|unsure|unaware)\b",
    r"\b(?:i|we) (?:\w+ )?(?:lack|have no|could find no|found no|apologi[sz]e)",
    rf"^(?:\w+ ){{0,4}}{_SOURCE_NOUN}(?: \w+){{0,4}} (?:do|does|did|is|are|was|were|has|have)?(?: )?{_NEGATION} "
    rf"(?:\w+ ){{0,3}}"
    rf"(?:{_SOURCE_VERB}|enough|sufficient|clear\b)",
    rf"\binformation(?: \w+){{0,4}} (?:is|are|was|were)(?: )?{_NEGATION} (?:\w+ ){{0,2}}available\b",
    rf"{_NEGATION} (?:\w+ ){{0,2}}(?:mentioned|specified|stated|provided|available|given|clear|discussed|found|covered)"
    rf" (?:\w+ ){{0,2}}(?:in|by|from) (?:\w+ ){{0,3}}{_SOURCE_NOUN}",
    rf"(?:^(?:and |so |because |since |that )?|\bthere (?:is|are|was|were|seems to be|appears to be) (?:\w+ ){{0,2}}"
    rf"|\b{_SOURCE_NOUN} (?:\w+ ){{0,3}}(?:contains?|provides?|has|have|gives?|offers?|makes?|includes?) "
    rf"){_NO_INFORMATION}",
    rf"\b{_NO_INFORMATION} (?:\w+ ){{0,6}}(?:in|by|from) (?:\w+ ){{0,3}}{_SOURCE_NOUN}",
    r"(?:^|\b(?:is|are|have|has|with|provides?|contains?) )(?:\w+ )?(?:insufficient|not enough) (?:\w+ )?"
    r"(?:information|context|data|details?)\b",
    r"\b(?:hard|difficult|impossible|not possible) to (?:say|tell|answer|determine|know)\b",
    rf"\bcan(?:not|'t| not) be (?:answered|determined)(?: (?:\w+ ){{0,4}}{_SOURCE_NOUN}|\W*$)",
    r"\b(?:it|this|that|question|query) is unanswerable\b|^unanswerable\W*$",
    r"(?:^|\b(?:i|we) (?:\w+ )?(?:have|had) )no (?:idea|clue)\b",
)
"""Patterns of clauses that give no answer, matched in lower case without quotations."""
_OFFER_PATTERN = (
    r"(?: (?:if|should|whether|when|about|on|with|regarding|for|in case|how|what|which|where|more|so)\b[^,;:()]*)?"
)
_HELP_PATTERN = r"(?:help|assist)(?: you)?(?: (?:further|more|today|any ?time))?"
COURTESY_PATTERNS = (
    r"let (?:me|us) know(?: what you think)?",
    r"(?:please )?feel free to (?:ask|contact|reach out|message|share|let me know|clarify|specify|rephrase|elaborate)"
    r"(?: (?:me|us|them|out|away|again|anything|any questions?|(?:any )?(?:\w+ )?questions?))*",
    r"(?:please )?do(?:n't| not) hesitate to (?:ask|contact|reach out)(?: (?:me|us|out|again))*",
    r"(?:i |we )?(?:really )?hope (?:this|that|it) (?:\w+ )?(?:helps|helped|answers your question|is helpful)",
    rf"(?:(?:i am|i'm|i'd be|i will be|i'll be|i would be|we are|we're|we'd be|always) )?"
    rf"(?:(?:more than|always|very) )?(?:happy|glad) to {_HELP_PATTERN}",
    rf"how (?:can|may) (?:i|we) {_HELP_PATTERN}",
    r"(?:many )?(?:thank you|thanks)(?: (?:so|very) much| a lot| again)?"
    r"(?: for (?:asking|your|the (?:question|clarification|information)|reaching|contacting|sharing)\b[^,;:()]*)?",
    r"(?:you're|you are) (?:very |most )?welcome",
    r"(?:i'm|i am|we're|we are) (?:very |so |really )?(?:sorry|afraid)(?: (?:about|for) \w+(?: \w+)?)?",
    r"(?:i|we) apologi[sz]e(?: (?:about|for) \w+(?: \w+)?)?",
    r"(?:(?:that's|that is|this is|what) )?an? (?:\w+ )?(?:great|good|excellent|interesting) question",
    r"(?:great|good|excellent|interesting) question",
    r"(?:hi|hello|hey|goodbye|bye)(?: \w+)?",
    r"(?:sure|certainly|of course|sorry|apologies|my apologies)(?: thing)?(?: (?:about|for) (?:that|this|the \w+))?",
    r"(?:(?:could|can|would) you (?:please |kindly )?|please )(?:\w+ )?(?:(?:clarify|rephrase|elaborate)\b[^,;:()]*"
    r"|specify(?: (?:what|which|who|whom|where|when|how|whether|if|more|your|further)\b[^,;:()]*)?)",
    r"please (?:provide|share|give) (?:me )?(?:with )?(?:more|further|additional) (?:information|contexts?|details?)",
)
"""Patterns of polite clauses without a claim, matched in lower case; an offer (`if …`) may follow."""
_LEAD_WORDS = r"(?:(?:and|but|so|also|well|yes|no|ok|okay|again|please|then|as always|otherwise) )*"
REFUSAL_REGEX = re.compile("|".join(REFUSAL_PATTERNS))
COURTESY_REGEX = re.compile(rf"\W*{_LEAD_WORDS}(?:{'|'.join(COURTESY_PATTERNS)}){_OFFER_PATTERN}\W*")
COURTESY_CONDITION = re.compile(r"\W*(?:and |but |so )?if (?:you|there)(?:'d|'ve| \w+)\b[^,;:()]*\W*")
"""Condition before a courtesy: `If you need anything else, let me know`."""
QUOTATION = re.compile(r"[\"\u201c][^\"\u201d]*[\"\u201d]")
_VERB_PATTERN = (
    r"(?:is|are|was|were|has|have|had|does|do|did|can|could|will|would|may|might|must|should|\w{2,}ed|became|began|built"
    r"|came|gave|held|left|led|lost|made|met|put|said|sold|took|went|won|wrote)"
)
_FRAGMENT_OPENING = (
    r"(?:if|as|in|on|at|for|from|with|without|by|to|of|since|when|while|although|though|given|based|according|after"
    r"|before|what|how|who|whom|whose|which|where|why|do|does|did|is|are|was|were|can|could|will|would|have|has|i|we)"
)
"""Words that begin a fragment, a question or a remark by the speaker."""
_SUBJECT_PATTERN = (
    r"(?:it|he|she|they|you|this|that|these|those|there|the|an?|his|her|its|their|my|our|your|[A-Z][\w'.-]*|\d[\d,.]*)"
)
CLAUSE_BOUNDARY = re.compile(
    rf"(?<=[,;:!?\u2013\u2014)])\s+|\s+(?=[-\u2013\u2014(]\s?)"
    rf"|\s+(?=(?i:and|so|since|as|although|though|while)\s{_SUBJECT_PATTERN}\b)|\s+(?=because\s(?!of\b))"
)
"""Clause boundaries in a sentence with a refusal or a courtesy."""
MAIN_CLAUSE = re.compile(
    rf"\W*(?:(?:and|so|because|since|as|although|though|while)\s)?(?!(?i:(?:\w+\s){{0,3}}{_SOURCE_NOUN}\b|{_FRAGMENT_OPENING}\b))"
    rf"(?:{_SUBJECT_PATTERN}|(?i:it|he|she|they|you|this|these|there|the)|(?<=because\s)\w+)"
    rf"(?:'s\s|\s(?:(?!(?:it|he|she|they|that|who|which|where|when|I|we|you)\b)[\w'.-]+\s){{0,6}}?{_VERB_PATTERN}\b)"
)
"""Clause with its own verb and its own subject, which is not the source."""
INTERJECTION = re.compile(
    r"^\s*(?:yes|no|yeah|well|sure|ok|okay|indeed|certainly|not really|actually)\s*[,.!:]\s+", re.IGNORECASE
)
"""Interjections at the start of a sentence; `No, she did` negates a question, not itself."""
RHETORICAL_QUESTION = re.compile(r"\b(?:do|did) you know\b|\bdid you hear\b")
"""Questions that make a statement."""


def extract_claims(sentence: str) -> list[str]:
    """Return the claims of a sentence: phrases with at least two content words each.

    >>> extract_claims("Arthur's Magazine was a literary periodical published in Philadelphia in the 19th century.")
    ["Arthur's Magazine was a literary periodical published", 'in Philadelphia in the 19th century.']
    >>> extract_claims("I do not know, but it was built in 1987."), extract_claims("Yes.")
    (['but it was built in 1987.'], [])
    >>> (extract_claims("Thanks for asking, it was built in 1987."),
    ...  extract_claims("I am sorry, the museum was closed in 1987."))
    (['it was built in 1987.'], ['the museum was closed in 1987.'])
    """
    bare = INTERJECTION.sub("", sentence)
    return [
        phrase
        for part in CONTRAST_BOUNDARY.split(bare)
        for clause in _claiming_parts(part)
        for phrase in _split_phrases(clause)
    ]


def _claiming_parts(part: str) -> list[str]:
    """Return the parts of a sentence without questions, courtesies and refusals.

    A segment next to a refusal or a question belongs to it (`Based on the text, I cannot say`), unless it is a main
    clause (`It was built in 1887, is there more?`).
    """
    plain = _normalise_clause(part)
    segments = CLAUSE_BOUNDARY.split(part)
    if plain.rstrip("\"' )").endswith(("?", "\uff1f")) and not RHETORICAL_QUESTION.search(plain):
        return [
            segment
            for segment in segments[:-1]
            if MAIN_CLAUSE.match(segment) and not _is_refusal(segment) and not _is_courtesy(segment)
        ]
    refused = any(_is_refusal(segment) for segment in segments)
    polite = any(_is_courtesy(segment) for segment in segments)
    if not refused and not polite:
        return [part] if _has_content(part) else []
    parts: list[list[str]] = [[]]
    for segment in segments:
        begins = not refused or MAIN_CLAUSE.match(segment) is not None
        if (
            _is_refusal(segment)
            or _is_courtesy(segment)
            or (polite and COURTESY_CONDITION.fullmatch(_normalise_clause(segment)))
        ):
            parts.append([])
        elif begins or parts[-1]:
            parts[-1].append(segment)
    return [clause for clause in map(" ".join, parts) if _has_content(clause)]


def _is_refusal(segment: str) -> bool:
    return (
        not _is_courtesy(segment)
        and REFUSAL_REGEX.search(_normalise_clause(QUOTATION.sub(" ", segment)).lstrip("-\u2013\u2014( ")) is not None
    )


def _is_courtesy(segment: str) -> bool:
    return COURTESY_REGEX.fullmatch(_normalise_clause(segment)) is not None


def _has_content(text: str) -> bool:
    return any(word.kind != "stop" for word in parse_words(text))


def _split_phrases(part: str) -> list[str]:
    edges = [0, *(match.end() for match in PHRASE_BOUNDARY.finditer(part)), len(part)]
    phrases: list[str] = []
    begun = 0
    for edge in edges[1:]:
        if sum(word.is_content for word in parse_words(part[begun:edge])) >= MIN_CLAIM_WORDS:
            phrases.append(part[begun:edge])
            begun = edge
    if begun < len(part):
        rest = part[begun:]
        phrases = [*phrases[:-1], phrases[-1] + rest] if phrases else [rest]
    return [phrase.strip() for phrase in phrases]


def _normalise_clause(text: str) -> str:
    return " ".join(text.lower().replace("\u2019", "'").split())
