"""The parts of values.schema.json that are the project's own schemas: `config`, and each of `rules`. Helm reads no second file, so
they are copied into it; `scripts/chart --write` does that, and every other run compares."""

import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
VALUES_SCHEMA = ROOT / "charts/tidegate/values.schema.json"


def moved(schema, prefix):
    """A schema whose references lead to `definitions`. Without keywords of later drafts than Helm knows."""
    if isinstance(schema, list):
        return [moved(item, prefix) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {}
    for key, value in schema.items():
        if key in ("$schema", "$defs", "x-help"):
            continue
        if key == "$ref":
            name = value.removeprefix("#/$defs/")
            assert name != value, f"{value}: a reference that is not to `$defs`"
            copy[key] = f"#/definitions/{prefix}.{name}"
        else:
            copy[key] = moved(value, prefix)
    return copy


def references(schema):
    """The names of the definitions that a schema uses."""
    if isinstance(schema, list):
        return {name for item in schema for name in references(item)}
    if not isinstance(schema, dict):
        return set()
    found = {schema["$ref"].removeprefix("#/definitions/")} if "$ref" in schema else set()
    return found | {name for value in schema.values() for name in references(value)}


def definitions():
    """What `definitions` has to be."""
    config = json.loads((ROOT / "docs/reference/config.schema.json").read_text())
    rules = json.loads((ROOT / "docs/reference/rules.schema.json").read_text())
    known = {"config": moved(config, "config")}
    known |= {f"config.{name}": moved(schema, "config") for name, schema in config["$defs"].items()}
    known |= {f"rules.{name}": moved(schema, "rules") for name, schema in rules["$defs"].items()}
    # A rule file can also be one of envoyproxy/ratelimit, which values are not: only what a rule needs.
    needed, open_names = set(), {"config", "rules.Rule"}
    while open_names:
        name = open_names.pop()
        needed.add(name)
        open_names |= references(known[name]) - needed
    return {name: known[name] for name in sorted(needed)}


def write():
    schema = json.loads(VALUES_SCHEMA.read_text())
    schema["definitions"] = definitions()
    VALUES_SCHEMA.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")


def differences():
    """The names of definitions that differ from the project's schemas."""
    written, expected = json.loads(VALUES_SCHEMA.read_text())["definitions"], definitions()
    return sorted(name for name in written.keys() | expected.keys() if written.get(name) != expected.get(name))
