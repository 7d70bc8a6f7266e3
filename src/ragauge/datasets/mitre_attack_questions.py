"""Names of ATT&CK object types and relations, and question templates over one or two relations."""

from __future__ import annotations

from typing import NamedTuple

TYPE_NAMES = {
    "attack-pattern": ("technique", "techniques"),
    "intrusion-set": ("group", "groups"),
    "malware": ("malware", "malware"),
    "tool": ("tool", "tools"),
    "course-of-action": ("mitigation", "mitigations"),
    "x-mitre-data-component": ("data component", "data components"),
    "x-mitre-data-source": ("data source", "data sources"),
    "x-mitre-detection-strategy": ("detection strategy", "detection strategies"),
    "x-mitre-tactic": ("tactic", "tactics"),
    "campaign": ("campaign", "campaigns"),
}
"""Singular and plural names of the object types that can be documents."""


class RelationWording(NamedTuple):
    """Question templates of a relation for both directions, and its inverse name."""

    forward: str
    inverse: str
    inverse_name: str
    """Name of the relation as seen from its target, used in ids and tags."""


RELATION_WORDINGS = {
    "uses": RelationWording(
        "Which {targets} does the {source} {name} use?", "Which {sources} use the {target} {name}?", "used-by"
    ),
    "mitigates": RelationWording(
        "Which {targets} does the {source} {name} mitigate?",
        "Which {sources} mitigate the {target} {name}?",
        "mitigated-by",
    ),
    "detects": RelationWording(
        "Which {targets} does the {source} {name} detect?", "Which {sources} detect the {target} {name}?", "detected-by"
    ),
    "subtechnique-of": RelationWording(
        "Of which technique is {name} a sub-technique?", "What are the sub-techniques of {name}?", "divided-into"
    ),
    "attributed-to": RelationWording(
        "To which group is the campaign {name} attributed?",
        "Which campaigns are attributed to the group {name}?",
        "credited-with",
    ),
    "serves": RelationWording(
        "Which tactics does the technique {name} serve?", "Which techniques serve the tactic {name}?", "served-by"
    ),
    "reads": RelationWording(
        "Which data components does the detection strategy {name} read?",
        "Which detection strategies read the data component {name}?",
        "read-by",
    ),
    "part-of": RelationWording(
        "Of which data source is the data component {name} a part?",
        "Which data components are parts of the data source {name}?",
        "made-of",
    ),
}
"""Relations that questions are generated from; `serves`, `reads` and `part-of` come from object fields."""


class OneHopQuestion(NamedTuple):
    """Question about one node: its related nodes of one type over one relation."""

    start: str
    kind: str
    inverse: bool
    target_type: str

    @property
    def bare(self) -> bool:
        """Whether to name a sub-technique without its technique, which is the answer."""
        return self.kind == "subtechnique-of"

    def words(self, start_type: str) -> tuple[str, ...]:
        """Return the names of start type, relation and wanted type.

        `start_type` is the type of the start node.
        """
        return (
            TYPE_NAMES[start_type][0],
            _relation_name(self.kind, inverse=self.inverse),
            TYPE_NAMES[self.target_type][0],
        )

    def text(self, start_type: str, name: str) -> str:
        start_name, target_name = TYPE_NAMES[start_type][0], TYPE_NAMES[self.target_type][1]
        wording = RELATION_WORDINGS[self.kind]
        if self.inverse:
            return wording.inverse.format(sources=target_name, target=start_name, name=name)
        return wording.forward.format(source=start_name, targets=target_name, name=name)


class TwoHopPath(NamedTuple):
    """Template for questions over two relations: start types, relation, type between, relation, wanted type.

    A relation prefixed with `<` is followed from its target to its source.
    """

    start_types: tuple[str, ...]
    first: str
    via: str
    second: str
    target_type: str
    wording: str


class TwoHopQuestion(NamedTuple):
    """Question about one node over a two-relation path."""

    start: str
    path: TwoHopPath

    @property
    def bare(self) -> bool:
        """Whether to name a sub-technique without its technique, to hide the answer."""
        return self.path.first == "subtechnique-of"

    def words(self, start_type: str) -> tuple[str, ...]:
        """Return the names of all types and relations along the path.

        `start_type` is the type of the start node.
        """
        _, first, via, second, target_type, _ = self.path
        steps = (_relation_name(step.removeprefix("<"), inverse=step.startswith("<")) for step in (first, second))
        return TYPE_NAMES[start_type][0], next(steps), TYPE_NAMES[via][0], next(steps), TYPE_NAMES[target_type][0]

    def text(self, start_type: str, name: str) -> str:
        return self.path.wording.format(start_type=TYPE_NAMES[start_type][0], name=name)


USER_TYPES = ("intrusion-set", "campaign", "malware", "tool")
SOFTWARE_TYPES = ("malware", "tool")
TWO_HOP_PATHS = (
    TwoHopPath(
        USER_TYPES,
        "uses",
        "attack-pattern",
        "<mitigates",
        "course-of-action",
        "Which mitigations help against techniques that the {start_type} {name} uses?",
    ),
    TwoHopPath(
        USER_TYPES,
        "uses",
        "attack-pattern",
        "serves",
        "x-mitre-tactic",
        "Which tactics do the techniques serve that the {start_type} {name} uses?",
    ),
    TwoHopPath(
        USER_TYPES,
        "uses",
        "attack-pattern",
        "<detects",
        "x-mitre-detection-strategy",
        "Which detection strategies find techniques that the {start_type} {name} uses?",
    ),
    TwoHopPath(
        ("intrusion-set", "campaign"),
        "uses",
        "malware",
        "uses",
        "attack-pattern",
        "Which techniques are used by malware that the {start_type} {name} uses?",
    ),
    TwoHopPath(
        ("intrusion-set", "campaign"),
        "uses",
        "tool",
        "uses",
        "attack-pattern",
        "Which techniques are used by tools that the {start_type} {name} uses?",
    ),
    TwoHopPath(
        SOFTWARE_TYPES,
        "<uses",
        "intrusion-set",
        "uses",
        "malware",
        "Which malware do the groups use that use the {start_type} {name}?",
    ),
    TwoHopPath(
        SOFTWARE_TYPES,
        "<uses",
        "intrusion-set",
        "uses",
        "tool",
        "Which tools do the groups use that use the {start_type} {name}?",
    ),
    TwoHopPath(
        ("campaign",),
        "attributed-to",
        "intrusion-set",
        "uses",
        "malware",
        "Which malware does the group use that the campaign {name} is attributed to?",
    ),
    TwoHopPath(
        ("campaign",),
        "attributed-to",
        "intrusion-set",
        "uses",
        "attack-pattern",
        "Which techniques does the group use that the campaign {name} is attributed to?",
    ),
    TwoHopPath(
        ("course-of-action",),
        "mitigates",
        "attack-pattern",
        "<uses",
        "intrusion-set",
        "Which groups use techniques that the mitigation {name} helps against?",
    ),
    TwoHopPath(
        ("course-of-action",),
        "mitigates",
        "attack-pattern",
        "serves",
        "x-mitre-tactic",
        "To which tactics belong the techniques that the mitigation {name} helps against?",
    ),
    TwoHopPath(
        ("attack-pattern",),
        "<uses",
        "intrusion-set",
        "uses",
        "tool",
        "Which tools do the groups use that use the technique {name}?",
    ),
    TwoHopPath(
        ("attack-pattern",),
        "<detects",
        "x-mitre-detection-strategy",
        "reads",
        "x-mitre-data-component",
        "In which data components can the technique {name} be seen?",
    ),
    TwoHopPath(
        ("attack-pattern",),
        "subtechnique-of",
        "attack-pattern",
        "<subtechnique-of",
        "attack-pattern",
        "Which sub-techniques belong to the same technique as {name}?",
    ),
    TwoHopPath(
        ("attack-pattern",),
        "<subtechnique-of",
        "attack-pattern",
        "<mitigates",
        "course-of-action",
        "Which mitigations help against sub-techniques of {name}?",
    ),
    TwoHopPath(
        ("x-mitre-data-component",),
        "<reads",
        "x-mitre-detection-strategy",
        "detects",
        "attack-pattern",
        "Which techniques can be seen in the data component {name}?",
    ),
    TwoHopPath(
        ("x-mitre-tactic",),
        "<serves",
        "attack-pattern",
        "<mitigates",
        "course-of-action",
        "Which mitigations help against techniques of the tactic {name}?",
    ),
)
"""Paths of two-hop questions. None passes through a campaign, because campaigns are documents only on request."""


def _relation_name(kind: str, *, inverse: bool) -> str:
    return RELATION_WORDINGS[kind].inverse_name if inverse else kind
