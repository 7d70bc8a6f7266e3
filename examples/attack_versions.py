"""Write the versions of MITRE ATT&CK objects for `ragauge freshness`.

A revoked object is superseded by its replacement.

python examples/attack_versions.py enterprise-attack.json versions.jsonl
ragauge run 'stix:enterprise-attack.json(retired=true)' -s bm25 -o runs
ragauge freshness runs --versions versions.jsonl
"""

from __future__ import annotations

import sys

from ragauge.files.source import InputFile
from ragauge.files.stix import read_stix_bundle
from ragauge.knowledge.freshness.results import DocumentVersion
from ragauge.knowledge.freshness.versions_file import write_versions


def list_versions(path: str) -> list[DocumentVersion]:
    """Return the versions of all revoked objects and their replacements.

    The key of a version is the id of the current object.
    """
    bundle = read_stix_bundle(InputFile(path))
    replacements = {relation.source: relation.target for relation in bundle.relations if relation.kind == "revoked-by"}

    def find_current(object_id: str) -> str:
        while object_id in replacements:
            object_id = replacements[object_id]
        return object_id

    current = {find_current(object_id) for object_id in replacements}
    revoked = [
        DocumentVersion(object_id, find_current(object_id), superseded_by=replacement)
        for object_id, replacement in replacements.items()
    ]
    return [*revoked, *(DocumentVersion(object_id, object_id) for object_id in sorted(current))]


if __name__ == "__main__":
    write_versions(list_versions(sys.argv[1]), sys.argv[2])
