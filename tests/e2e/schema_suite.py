"""JSON schemas: the official test suite, and random outputs against the `jsonschema` package.

    schema_suite.py [--samples N] [--list]

Every schema of the suite (tests/data/json-schema-test-suite.tar.xz, drafts 3 to 2020-12) is compiled or refused by name. Of the compiled
ones the grammar must take no instance that the suite calls invalid. Then N random texts of the compiled grammars are validated. What the
grammar does not take although it is valid is counted: other numbers' spellings, more keys in another order, and what a
grammar gives up on purpose (frontend/schemac_impl.h)."""
import argparse
import collections
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import warnings

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "build/tests/gramtool"
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
SUITE = ROOT / "tests/data/json-schema-test-suite.tar.xz"
DRAFTS = {
    "draft3": ("http://json-schema.org/draft-03/schema#", jsonschema.Draft3Validator),
    "draft4": ("http://json-schema.org/draft-04/schema#", jsonschema.Draft4Validator),
    "draft6": ("http://json-schema.org/draft-06/schema#", jsonschema.Draft6Validator),
    "draft7": ("http://json-schema.org/draft-07/schema#", jsonschema.Draft7Validator),
    "draft2019-09": ("https://json-schema.org/draft/2019-09/schema", jsonschema.Draft201909Validator),
    "draft2020-12": ("https://json-schema.org/draft/2020-12/schema", jsonschema.Draft202012Validator),
}
# Schemas as clients send them; each is tried many times. Formats are checked by the packages that `jsonschema` names for it.
OWN = [
    *({"type": "string", "format": f} for f in ("date date-time time duration email idn-email hostname idn-hostname ipv4 ipv6 uri "
                                                "uri-reference uri-template uuid json-pointer relative-json-pointer regex").split()),
    {"type": "object", "properties": {"when": {"type": "string", "format": "date-time", "maxLength": 30}, "mail": {"format": "email", "type": "string", "maxLength": 20}},
     "required": ["when", "mail"], "additionalProperties": False},
    {"type": "object", "properties": {"steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}, "minItems": 1, "maxItems": 4}, "answer": {"type": "string"}},
     "required": ["steps", "answer"], "additionalProperties": False,
     "$defs": {"Step": {"type": "object", "properties": {"explanation": {"type": "string"}, "output": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                        "required": ["explanation", "output"], "additionalProperties": False}}},
    {"$defs": {"Node": {"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 8}, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
                        "required": ["name", "children"]}}, "$ref": "#/$defs/Node"},
    {"oneOf": [{"type": "object", "properties": {"kind": {"const": k}, "size": {"type": t}}, "required": ["kind", "size"]}
               for k, t in (("a", "integer"), ("b", "string"), ("c", "boolean"), ("d", "null"), ("e", "number"))]},
    {"type": "object", "properties": {"n": {"type": "number", "minimum": -3.75, "exclusiveMaximum": 12.5}, "i": {"type": "integer", "exclusiveMinimum": -20, "maximum": 1234},
                                      "m": {"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 1000}, "h": {"type": "number", "multipleOf": 0.25}},
     "required": ["n", "i", "m", "h"]},
    {"type": "number", "exclusiveMinimum": 0.1, "exclusiveMaximum": 0.3},
    {"type": "number", "minimum": 1e-7, "maximum": 0.5},
    {"type": "number", "minimum": -1e20, "maximum": 1e20, "not": {"multipleOf": 1}},
    {"enum": [1, 2.5, -0.125, "x", None, True, [1, {"a": []}], {"b": "c", "d": 1e3}, 123456789012345678]},
    {"type": "object", "patternProperties": {"^x-\\w+$": {"type": "string"}, "\\d": {"maxLength": 3}}, "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 4},
    {"type": "object", "propertyNames": {"pattern": "^[a-z_]{1,10}$"}, "additionalProperties": {"type": ["number", "null"]}},
    {"type": "array", "prefixItems": [{"type": "string", "pattern": "^[^\\s\"]{2,5}$"}, {"type": "integer"}], "items": {"type": "boolean"}, "minItems": 2, "maxItems": 6},
    {"type": "array", "items": {"enum": ["red", "green", "blue", 1, 2, None, False]}, "uniqueItems": True, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 30}, "contains": {"multipleOf": 5}, "minContains": 2, "maxContains": 3, "maxItems": 8},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "boolean"}}, "minProperties": 2, "additionalProperties": False,
     "dependentRequired": {"a": ["b"]}, "not": {"required": ["b", "c"]}},
    {"type": "object", "properties": {"country": {"enum": ["US", "NL"]}, "zip": {"type": "string"}}, "required": ["country", "zip"],
     "if": {"properties": {"country": {"const": "US"}}}, "then": {"properties": {"zip": {"pattern": "^[0-9]{5}(-[0-9]{4})?$"}}},
     "else": {"properties": {"zip": {"pattern": "^[0-9]{4} ?[A-Z]{2}$"}}}},
    {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string", "maxLength": 5}}}], "type": "object",
     "unevaluatedProperties": False},
    {"type": "string", "pattern": "^(?:[A-Z][a-z]+ ){1,3}[A-Z]\\.$", "maxLength": 20},
    {"type": "string", "minLength": 3, "maxLength": 6, "not": {"pattern": "\\d"}},
    {"type": ["string", "integer"], "not": {"enum": ["a", "b", 0, 10]}, "maxLength": 2, "minimum": -5, "maximum": 10},
    {"type": "string", "contentEncoding": "base64"},
]
# Asserted by no validator that we know: it would mean JSON within a JSON string.
NOT_ASSERTED = "contentMediaType"
ORDERS_MAX = 120  # of an instance's keys


def groups(draft):
    """The suite's schemas with their instances, and whether their file is about a format."""
    with tarfile.open(SUITE) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            if not member.name.startswith(f"tests/{draft}/") or not member.name.endswith(".json"):
                continue
            for group in json.load(tar.extractfile(member)):
                yield member.name.removeprefix(f"tests/{draft}/"), group


def orders(value):
    """The value with its objects' keys in all orders, the given one first; at most ORDERS_MAX of them."""
    if isinstance(value, dict):
        parts = [list(itertools.islice(orders(v), ORDERS_MAX)) for v in value.values()]
        for keys in itertools.islice(itertools.permutations(range(len(value))), ORDERS_MAX):
            names = list(value)
            for choice in itertools.product(*(parts[k] for k in keys)):
                yield {names[k]: v for k, v in zip(keys, choice)}
    elif isinstance(value, list):
        parts = [list(itertools.islice(orders(v), ORDERS_MAX)) for v in value]
        for choice in itertools.product(*parts):
            yield list(choice)
    else:
        yield value


def texts(value):
    return [json.dumps(v, separators=(",", ":"), ensure_ascii=False) for v in itertools.islice(orders(value), ORDERS_MAX)]


def has_surrogate(text):
    return any(0xD800 <= ord(c) < 0xE000 for c in text)


def ask(requests):
    """The tool's answers to the requests, in order."""
    lines = "\n".join(json.dumps(r) for r in requests) + "\n"
    done = subprocess.run([str(TOOL)] + [str(MODEL)] * MODEL.exists(), input=lines, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"gramtool: {done.returncode} {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


class Run:
    def __init__(self, show):
        self.show = show
        self.faults = []
        self.compiled = []  # (draft, schema, where)

    def declared(self, schema, uri):
        return {"$schema": uri, **schema} if isinstance(schema, dict) and "$schema" not in schema else schema

    def suite(self, draft):
        uri, _ = DRAFTS[draft]
        found = [(file, g, self.declared(g["schema"], uri)) for file, g in groups(draft)]
        asked = []
        for _, group, schema in found:
            spans, all_texts = [], []
            for test in group["tests"]:
                some = [t for t in texts(test["data"]) if not has_surrogate(t)]
                spans.append((test, len(all_texts), len(some)))
                all_texts += some
            asked.append(({"schema": schema, "exact": True, "texts": all_texts}, spans))
        answers = ask([request for request, _ in asked])
        refused, n_valid, n_taken, slowest = collections.Counter(), 0, 0, 0
        for (file, group, schema), (_, spans), answer in zip(found, asked, answers):
            where = f"{draft}/{file}: {group['description']}"
            slowest = max(slowest, answer["us"])
            if answer["rc"]:
                refused[file] += 1
                if self.show:
                    print(f"  refused: {where}: {answer['error']}")
                if len(answer["error"]) < 12:
                    self.faults.append(f"{where}: refused without a reason")
                if answer["rc"] == -1 and answer["error"].startswith("no value") and any(t["valid"] for t in group["tests"]):
                    self.faults.append(f"{where}: called unsatisfiable")
                continue
            self.compiled.append((draft, schema, where))
            for test, at, n in spans:
                taken = any(answer["accepts"][at : at + n])
                if taken and not test["valid"] and NOT_ASSERTED not in str(group["schema"]):
                    self.faults.append(f"{where}: takes {test['data']!r} ({test['description']})")
                n_valid += test["valid"]
                n_taken += test["valid"] and taken
                if self.show and test["valid"] and not taken:
                    print(f"  not taken: {where}: {json.dumps(test['data'])[:100]} ({test['description']})")
        n = len(found)
        n_refused = sum(refused.values())
        print(f"{draft:13} {n - n_refused:4} of {n} schemas compiled ({100 * (n - n_refused) // n}%), "
              f"{n_taken} of {n_valid} valid instances taken ({100 * n_taken // max(n_valid, 1)}%), slowest {slowest / 1000:.1f} ms")
        print("  refused:", ", ".join(f"{f} {k}" for f, k in refused.most_common()) or "none")

    def random(self, n):
        """n texts made byte by byte, and n made of the model's tokens as the worker makes them; half of them by our own schemas."""
        share = -(-n // (2 * len(self.compiled)))
        self.compiled += [("draft2020-12", s, f"own schema {s}") for s in OWN for _ in range(-(-n // (2 * len(OWN) * share)))]
        requests = [{"schema": s, "random": share, "tokens": share * MODEL.exists(), "seed": 1 + i, "compact": i % 3 == 0, "len": 80 + 37 * (i % 11)} for i, (_, s, _) in enumerate(self.compiled)]
        done = 0
        for (draft, schema, where), answer in zip(self.compiled, ask(requests)):
            if answer["rc"]:
                self.faults.append(f"{where}: compiled only with exact types: {answer['error']}")
                continue
            _, cls = DRAFTS[draft]
            validator = cls(schema, format_checker=cls.FORMAT_CHECKER)
            for text in answer["samples"]:
                if text is None:
                    self.faults.append(f"{where}: the worker could not finish its output")
                    continue
                done += 1
                try:
                    errors = list(validator.iter_errors(json.loads(text)))
                except re.error:  # an expression that Python does not know
                    done -= 1
                    continue
                if errors:
                    self.faults.append(f"{where}: wrote {text[:200]!r}: {str(errors[0])[:200]!r}")
        print(f"{done} random outputs validated")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--samples", type=int, default=2000)
    arguments.add_argument("--drafts", nargs="*", default=list(DRAFTS))
    arguments.add_argument("--list", action="store_true", help="name what is refused or not taken")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    run = Run(given.list)
    for draft in given.drafts:
        run.suite(draft)
    if given.samples:
        run.random(given.samples)
    for fault in run.faults:
        print("FAULT", fault)
    sys.exit(1 if run.faults else 0)


if __name__ == "__main__":
    main()
