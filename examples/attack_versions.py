"""The versions of MITRE ATT&CK's objects, for `ragauge freshness`: what was revoked is superseded by what replaces it.

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


def versions(bundle: str) -> list[DocumentVersion]:
    """A version of every object that was revoked or replaces one; the key is the object that is current."""
    found = read_stix_bundle(InputFile(bundle))
    replaced = {one.source: one.target for one in found.relations if one.kind == "revoked-by"}

    def current(name: str) -> str:
        while name in replaced:
            name = replaced[name]
        return name

    ends = {current(name) for name in replaced}
    old = [DocumentVersion(name, current(name), superseded_by=newer) for name, newer in replaced.items()]
    return [*old, *(DocumentVersion(name, name) for name in sorted(ends))]


if __name__ == "__main__":
    write_versions(versions(sys.argv[1]), sys.argv[2])
