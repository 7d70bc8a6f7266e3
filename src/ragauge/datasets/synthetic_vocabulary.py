"""Vocabulary of the synthetic datasets: entity types, subjects, sentence templates and invented names."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import count
from typing import NamedTuple


class EntityType(NamedTuple):
    """Entity type of the synthetic graph, with the sentence templates for its documents."""

    share: int
    """Share of the entities, in percent."""
    name_template: str
    """Name template: one of `parts` and an invented word, {made}."""
    parts: str
    openings: tuple[str, ...]
    """Opening sentences with a {word} of the entity's subject; each document of an entity has a different one."""
    traits: tuple[str, ...]
    """Other sentences about an entity."""


SUBJECT_WORDS: Mapping[str, str] = {
    "glaciers": "deep ice, meltwater, crevasses, moraines, snowfields, icebergs, frozen lakes, permafrost",
    "birds": "finches, larks, nesting, feathers, warblers, owls, wings, beaks",
    "astronomy": "comets, starlight, eclipses, moons, nebulae, meteors, dwarf planets, sunspots",
    "volcanoes": "lava, magma, ash clouds, craters, basalt, sulfur, hot springs, pumice",
    "plants": "mosses, orchids, pollen, seedlings, roots, lichens, petals, ferns",
    "oceans": "tides, plankton, currents, coral, salty water, kelp, deep trenches, surf",
    "metals": "steel, copper, alloys, welding, furnaces, rust, ingots, brass",
    "sound": "echoes, bells, resonance, violins, vibration, loudspeakers, whispers, organ pipes",
    "medicine": "fever, antibodies, surgery, sleep, vaccines, wounds, blood pressure, nerves",
    "weather": "rainfall, hail, thunder, fog, gusts, drought, cloud cover, storms",
    "textiles": "wool, silk, looms, dyes, linen, knitting, velvet, cotton",
    "insects": "beetles, ants, wasps, cocoons, moths, dragonflies, antennae, swarms",
}
"""Subject as named in questions, and the words that documents use for it."""
ENTITY_MENTIONS = ("{who}, known for {subject},", "{who}, of {subject} fame,", "{who} (think of {subject})")
"""Phrases with which a question names an entity."""

ENTITY_TYPES: Mapping[str, EntityType] = {
    "researcher": EntityType(
        28,
        "{part} {made}",
        "Ada, Bela, Cyril, Dora, Edda, Fenno, Gita, Hugo, Ines, Jorun, Kaspar, Lucia, Milo, Nadia, Petra, Rosa, Sten",
        (
            "{who} is a researcher with a love of {word}.",
            "Few researchers understand {word} as {who} does.",
            "Ask any researcher about {word} and you will be sent to {who}.",
            "As a researcher {who} began with {word} and never quite left.",
            "This page is about the researcher {who}, patient with {word}.",
        ),
        (
            "Colleagues praise the notebooks on {word}.",
            "A prize for {word} stands on the shelf.",
            "The lectures on {word} fill the hall.",
            "In the evenings there is time for {word}.",
        ),
    ),
    "lab": EntityType(
        10,
        "{made} {part}",
        "Laboratory, Observatory, Institute, Station",
        (
            "The lab {who} has spent its years on {word}.",
            "{who} is a lab that opened when {word} came into fashion.",
            "Whoever cares about {word} has heard of the lab {who}.",
            "At {who} the lights of the lab burn late over {word}.",
            "{who} is a small lab, and serious about {word}.",
        ),
        (
            "Its cellar holds samples of {word}.",
            "The library has a room for {word}.",
            "A grant for {word} pays the heating.",
            "Guests are shown the hall of {word} first.",
        ),
    ),
    "paper": EntityType(
        26,
        "{part} from {made}",
        "Notes, Remarks, Lessons, First Results, Second Thoughts, Open Questions, Letters, Short Accounts",
        (
            "{who} is a paper that begins with {word}.",
            "The paper {who} made {word} respectable.",
            "Reviewers called the paper {who} a brave account of {word}.",
            "Read {who}, a paper with figures on {word}.",
            "{who} is a paper of forty pages, most of them on {word}.",
        ),
        (
            "The appendix lists {word}.",
            "A reviewer doubted the part on {word}.",
            "Its best figure shows {word}.",
            "The closing pages return to {word}.",
        ),
    ),
    "instrument": EntityType(
        14,
        "{made} {part}",
        "Spectrometer, Telescope, Seismograph, Barometer, Interferometer, Magnetometer",
        (
            "{who} is an instrument for {word}.",
            "{who} is an instrument that hums in the presence of {word}.",
            "What makes the instrument {who} precise is long practice with {word}.",
            "A cover of canvas protects {who}, an instrument made with {word} in mind.",
            "Nobody moves the instrument {who} once it is set to {word}.",
        ),
        (
            "Spare parts for {word} lie in a drawer.",
            "The handbook has a chapter on {word}.",
            "After the repair it was tried on {word}.",
            "On cold days it takes an hour to see {word}.",
        ),
    ),
    "place": EntityType(
        8,
        "{made} {part}",
        "Bay, Valley, Harbor, Heights",
        (
            "{who} is a place famous for {word}.",
            "Travellers come to {who}, a place of {word}.",
            "{who} is a place whose coat of arms shows {word}.",
            "{who} is a place that wakes early because of {word}.",
            "In {who} everything takes place around {word}.",
        ),
        (
            "A feast in spring honors {word}.",
            "The ferry brings guests who ask for {word}.",
            "There is a small museum of {word}.",
            "Old songs tell of {word}.",
        ),
    ),
    "method": EntityType(
        14,
        "{made} {part}",
        "Transform, Filter, Estimator, Expansion, Sieve, Correction",
        (
            "{who} is a method that was first tried on {word}.",
            "The method {who} turns {word} into one number.",
            "Where {word} spoils a result, the method {who} helps.",
            "Students fear the method {who} because of {word}.",
            "{who} is a method that needs little but {word}.",
        ),
        (
            "It fails without {word}.",
            "Textbooks illustrate it with {word}.",
            "A faster variant ignores {word}.",
            "The proof takes care of {word}.",
        ),
    ),
}


SYLLABLES = """
ba cor del fin gar hul jo kan lor mer nim os pra quil ru sol tem ul vas wen yor zan
"""
MAX_NAME_ATTEMPTS = 1000
"""Number of failed attempts after which names get one syllable longer."""


def invent_name(rng: random.Random, used_names: set[str]) -> str:
    """Generate a name that is not in `used_names`, and add it.

    >>> invent_name(random.Random(0), set())
    'Praquilcor'
    """
    syllables = SYLLABLES.split()
    for attempt in count():
        extra_syllables = attempt // MAX_NAME_ATTEMPTS
        name = "".join(rng.choice(syllables) for _ in range(3 + extra_syllables)).capitalize()
        if name not in used_names:
            break
    used_names.add(name)
    return name
