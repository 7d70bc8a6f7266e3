"""Worker process that reads the documentation of its interpreter; uses only the standard library."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ragauge.compute.worker_process import SendEvent

DOCUMENTED_MODULES = """
builtins abc argparse array ast asyncio atexit base64 bdb binascii bisect bz2 calendar cmath cmd code codecs codeop
collections collections.abc colorsys compileall concurrent.futures configparser contextlib contextvars copy copyreg
cProfile csv ctypes dataclasses datetime decimal difflib dis doctest email email.message email.policy email.utils
ensurepip enum errno faulthandler filecmp fileinput fnmatch fractions ftplib functools gc getopt getpass gettext glob
graphlib gzip hashlib heapq hmac html html.parser http http.client http.cookiejar http.cookies http.server imaplib
importlib importlib.metadata importlib.resources importlib.util inspect io ipaddress itertools json keyword linecache
locale logging logging.config logging.handlers lzma mailbox marshal math mimetypes mmap modulefinder multiprocessing
multiprocessing.pool multiprocessing.shared_memory netrc numbers operator optparse os os.path pathlib pdb pickle
pickletools pkgutil platform plistlib poplib pprint profile pstats py_compile pyclbr pydoc queue quopri random re
reprlib runpy sched secrets select selectors shelve shlex shutil signal site smtplib socket socketserver sqlite3 ssl
stat statistics string stringprep struct subprocess symtable sys sysconfig tabnanny tarfile tempfile textwrap
threading time timeit token tokenize tomllib trace traceback tracemalloc types typing unicodedata unittest
unittest.mock urllib.error urllib.parse urllib.request urllib.robotparser uuid venv warnings wave weakref webbrowser
wsgiref.simple_server wsgiref.util xml.dom.minidom xml.etree.ElementTree xml.sax xmlrpc.client xmlrpc.server zipapp
zipfile zipimport zlib zoneinfo
"""
"""Modules to document, listed explicitly because importing an unchecked module may have side effects."""

MAX_DOCUMENT_CHARS = 4000
"""Maximum length of a document in characters; chapters of the language reference are longer."""


DocumentRow = dict[str, Any]


def run_task(_task: None, _send: SendEvent) -> list[DocumentRow]:
    return list(generate_documents())


def generate_documents() -> Iterator[DocumentRow]:
    """Yield the documents of all modules, then the language reference.

    `links` connect a method to its class, a class or function to its module, and a chapter to the chapters and
    documents that `pydoc` lists as related.
    """
    seen_objects: dict[int, Any] = {}  # keeps the objects alive: the id() of a deleted object can be reused
    document_ids: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated modules warn on import
        for name in DOCUMENTED_MODULES.split():
            try:
                module = importlib.import_module(name)
            except ImportError:  # an interpreter built without sqlite3 or ssl still has the rest
                continue
            for row in _module_documents(name, module, seen_objects):
                document_ids.add(row["id"])
                parent = next((above for above in _possible_parents(row["id"], name) if above in document_ids), None)
                row["metadata"]["links"] = {"part of": [parent]} if parent else {}
                yield row
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    related = _related_documents(topics, document_ids)
    for topic, text in sorted(topics.items()):
        lines = text.strip().splitlines()
        title = lines[0] if lines else topic
        row = _document_row(f"reference:{topic}", text.strip(), title, "reference", "reference")
        row["metadata"]["links"] = {"related": related[topic]} if related[topic] else {}
        yield row


def _possible_parents(identifier: str, module: str) -> Iterator[str]:
    """Yield the ids of possible parents, nearest first.

    These are the dotted prefixes, then `builtins`.
    """
    parts = identifier.split(".")
    yield from (".".join(parts[:n]) for n in range(len(parts) - 1, 0, -1))
    if module == "builtins" and identifier != module:
        yield module


def _related_documents(topics: dict[str, str], document_ids: set[str]) -> dict[str, list[str]]:
    """Map each chapter to what `pydoc` lists as related: other chapters, or documents."""
    helper = importlib.import_module("pydoc").Helper
    labels: dict[str, Any] = {**helper.keywords, **helper.topics}

    def chapter(label: str) -> str:
        """Resolve a label to its chapter; some labels refer to another label."""
        entry = labels.get(label, "")
        return str(entry[0]) if isinstance(entry, tuple) else chapter(entry) if entry else ""

    related: dict[str, dict[str, None]] = {topic: {} for topic in topics}
    for entry in labels.values():
        topic, related_words = entry if isinstance(entry, tuple) else ("", "")
        for word in related_words.split() if topic in related else ():
            target = f"reference:{chapter(word)}" if chapter(word) in related else word
            if target in document_ids or (target.startswith("reference:") and target != f"reference:{topic}"):
                related[topic][target] = None
    return {topic: list(targets) for topic, targets in related.items()}


def _document_row(identifier: str, text: str, title: str, kind: str, module: str) -> DocumentRow:
    return {
        "id": identifier,
        "text": text[:MAX_DOCUMENT_CHARS],
        "title": title,
        "metadata": {"kind": kind, "module": module},
    }


def _module_documents(name: str, module: ModuleType, seen_objects: dict[int, Any]) -> Iterator[DocumentRow]:
    text = inspect.cleandoc(module.__doc__ or "")
    if text:
        yield _document_row(name, f"{name}\n\n{text}", name, "module", name)
    public = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    prefix = "" if name == "builtins" else f"{name}."
    for attribute in sorted(public):
        documented = getattr(module, attribute, None)
        # The docstring of an instance is that of its class and says nothing about the instance.
        if (
            not (inspect.isclass(documented) or inspect.isroutine(documented))
            or id(documented) in seen_objects
            or not _is_defined_in(documented, name)
        ):
            continue
        seen_objects[id(documented)] = documented
        identifier = f"{prefix}{attribute}"
        if inspect.isclass(documented):
            yield from _object_documents(identifier, documented, "class", name)
            for member, value in sorted(_class_members(documented, module).items()):
                function = getattr(value, "__func__", value)  # unwraps class methods and static methods
                if not member.startswith("_") and (inspect.isroutine(function) or isinstance(value, property)):
                    yield from _object_documents(f"{identifier}.{member}", function, "method", name)
        else:
            yield from _object_documents(identifier, documented, "function", name)


def _class_members(kind: type, module: ModuleType) -> dict[str, Any]:
    """Return the members of a class and of its private base classes.

    Private bases that a public class of the module also inherits from are left out.
    """
    members = dict(vars(kind))
    package = kind.__module__.split(".")[0]
    public_bases = [
        base
        for base in kind.__mro__[1:]
        if not base.__name__.startswith("_") and getattr(module, base.__name__, None) is base
    ]
    for base in kind.__mro__[1:]:
        home = base.__module__.split(".")
        is_private_module = home[0] == package and any(module_part.startswith("_") for module_part in home)
        is_hidden = base.__name__.startswith("_") or (is_private_module and base not in public_bases)
        if is_hidden and not any(issubclass(public_base, base) for public_base in public_bases):
            members = {**vars(base), **members}
    return members


def _is_defined_in(documented: Any, module: str) -> bool:
    """Return whether an object belongs to a module.

    It does if it is defined in the module, its package, or a private module.
    """
    home = getattr(documented, "__module__", None) or "_"
    if module == "builtins":
        return home in ("builtins", "_io", "io")  # `open` comes from there
    package = module.split(".", maxsplit=1)[0]
    return (
        home == module
        or home.startswith((f"{module}.", f"{package}.", "_"))
        or home in _IMPLEMENTATION_MODULES.get(module, ())
    )


_IMPLEMENTATION_MODULES = {
    "os": ("posix", "nt"),
    "os.path": ("posixpath", "genericpath", "ntpath", "posix", "nt"),
    "io": ("io",),
}


def _object_documents(identifier: str, documented: Any, kind: str, module: str) -> Iterator[DocumentRow]:
    text = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
    if not text and kind == "class":  # some classes document only their constructor
        text = inspect.cleandoc(vars(documented)["__init__"].__doc__ or "") if "__init__" in vars(documented) else ""
    if len(text.split()) < 3:
        return
    title = f"{identifier}{_format_signature(documented)}"
    yield _document_row(identifier, f"{title}\n\n{text}", title, kind, module)


class _EllipsisRepr:
    def __repr__(self) -> str:
        return "..."


def _format_signature(documented: Any) -> str:
    try:
        signature = inspect.signature(documented)
    except (TypeError, ValueError, AttributeError):  # AttributeError: a bug of inspect in 3.13 with defaults in C
        return ""
    parameters = [
        parameter.replace(default=_EllipsisRepr())
        if parameter.default is not parameter.empty and _is_unstable_default(parameter.default)
        else parameter
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters))


def _is_unstable_default(default: Any) -> bool:
    """Return whether a default differs between processes or installations.

    `<…>` in its representation contains an address.
    """
    text = repr(default)
    return "<" in text or any(path in text for path in (sys.executable, sys.prefix, sys.base_prefix))
