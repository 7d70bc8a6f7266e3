"""English word lists of the lexical judge: stop words, general and personal words, negations and numbers."""

from __future__ import annotations


def _listed(text: str) -> list[str]:
    return text.split()


STOP = frozenset(
    _listed("""
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

PERSONAL = frozenset(_listed("i me my mine myself we us our ours ourselves you your yours yourself yourselves"))
"""Words for the speaker or the reader: rare in retrieved texts, frequent in small talk."""

GENERAL = _listed("""
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

NEGATIONS = frozenset(
    _listed("""
    no not never none neither nor nobody nothing nowhere cannot cant dont doesnt didnt isnt arent wasnt werent
    wont wouldnt shouldnt couldnt hasnt havent hadnt mustnt neednt
    """)
)

NUMBERS = {
    word: number
    for number, word in enumerate(
        _listed("""
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty
    """)
    )
} | {word: 10 * tens for tens, word in enumerate(_listed("thirty forty fifty sixty seventy eighty ninety"), 3)}
"""Numbers written as words; `one` is more often a pronoun and is a stop word first."""

ORDINALS = {
    word: number
    for number, word in enumerate(
        _listed("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"), 1
    )
}
