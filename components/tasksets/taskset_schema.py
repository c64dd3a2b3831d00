"""The JSON Schema of a taskset's files, generated from the types that read them."""

import json

import msgspec

from ratchet.components.core import TaskSpec

from .taskset_files import TasksetHead


def schema_text() -> str:
    """Return the JSON Schema (2020-12), indented, with a final newline. It describes one document: the content of
    `taskset.yaml`, or one line of a JSONL file. Unknown keys are invalid, as in the reader.
    """
    references, definitions = msgspec.json.schema_components((TasksetHead, TaskSpec), ref_template="#/$defs/{name}")
    version = next(field.default for field in msgspec.structs.fields(TaskSpec) if field.name == "schema_version")
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Ratchet taskset, schema version {version}",
        "description": "A document is the content of taskset.yaml (TasksetHead) or one task (TaskSpec).",
        "anyOf": list(references),
        "$defs": definitions,
    }
    plain = msgspec.json.decode(msgspec.json.encode(schema))
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
