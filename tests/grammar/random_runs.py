#!/usr/bin/env python3
"""Random schemas, seeds and temperatures: every text that the bundled model generates parses, and satisfies its schema.

    random_runs.py RUNS MODEL COUNT [--seed N]

RUNS: the program grammar_runs. The texts are read back by Python's json module and validated here, by code that knows
nothing of the library's. A text that was cut by its length says so and is not counted as parsed. Exits with 1 where a
text does not parse, does not satisfy its schema, or a run failed."""
import collections
import datetime
import json
import random
import re
import subprocess
import sys

PATTERNS = ["^[a-z]{2,5}$", "^[A-Z]", "[0-9]+$", "^(red|green|blue)$", "^a.*z$", "^\\d{3}-\\d{4}$", "x|y", "^$|^ok$", "^[^aeiou]*$", "^\\w+@\\w+\\.(com|org)$"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "duration"]
NAMES = ["a", "b", "name", "id", "value", "long name", "\u00e9t\u00e9", "quote\"d", "line\nend", "na", "nam", "x-y"]


def scalar(rng):
    return rng.choice([None, True, False, rng.randint(-100, 100), rng.randint(-10**12, 10**12), round(rng.uniform(-5, 5), 3),
                       rng.choice(["", "word", "two words", "tab\t", "\u00fc\u4e2d", "\"", "\\"])])


def bounds(rng, low, high, keys):
    made, first, last = {}, *sorted((rng.randint(low, high), rng.randint(low, high)))
    if rng.random() < 0.6:
        made[keys[0]] = first
    if rng.random() < 0.7:
        made[keys[1]] = last
    return made


def make(rng, depth=0):
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern", "format"]
    if depth < 3:
        kinds += ["object"] * 6 + ["array"] * 4 + ["anyOf", "allOf", "oneOf", "ref", "types", "tuple", "map", "if"]
    kind = rng.choice(kinds)
    if kind == "string":
        return {"type": "string", **bounds(rng, 0, 12, ("minLength", "maxLength"))}
    if kind == "integer":
        made = {"type": "integer", **bounds(rng, -300, 5000, ("minimum", "maximum"))}
        if rng.random() < 0.2 and "minimum" not in made:
            made["multipleOf"] = rng.choice([2, 3, 5, 10, 25])
        return made
    if kind == "number":
        made = {"type": "number"}
        low, high = sorted((round(rng.uniform(-20, 20), 2), round(rng.uniform(-20, 20), 2)))
        if rng.random() < 0.6:
            made[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.6 and high - low > 0.1:
            made[rng.choice(["maximum", "exclusiveMaximum"])] = high
        return made
    if kind in ("boolean", "null"):
        return {"type": kind}
    if kind == "enum":
        return {"enum": [scalar(rng) for _ in range(rng.randint(1, 6))]}
    if kind == "const":
        return {"const": rng.choice([scalar(rng), [1, "two", None], {"k": [True], "z": "q"}])}
    if kind == "pattern":
        made = {"type": "string", "pattern": rng.choice(PATTERNS)}
        if rng.random() < 0.3:
            made["maxLength"] = 12
        return made
    if kind == "format":
        return {"type": "string", "format": rng.choice(FORMATS)}
    if kind == "array":
        return {"type": "array", "items": make(rng, depth + 1), **bounds(rng, 0, 4, ("minItems", "maxItems"))}
    if kind == "tuple":
        made = {"type": "array", "prefixItems": [make(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
        made["items"] = rng.choice([False, make(rng, depth + 1)])
        if rng.random() < 0.5:
            made["minItems"] = len(made["prefixItems"])
        return made
    if kind == "anyOf":
        return {"anyOf": [make(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
    if kind == "oneOf":
        return {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "object", "required": ["kind"], "properties": {"kind": {"const": "a"}}},
                          {"type": "object", "required": ["kind"], "properties": {"kind": {"const": "b"}, "n": make(rng, depth + 1)}}][:rng.randint(1, 4)]}
    if kind == "allOf":
        first = make_object(rng, depth)
        second = make_object(rng, depth)
        for part in (first, second):
            part.pop("additionalProperties", None)
            part.pop("maxProperties", None)
        second["properties"] = {name: schema for name, schema in second["properties"].items() if name not in first["properties"]}
        second["required"] = [name for name in second.get("required", []) if name in second["properties"]]
        return {"allOf": [first, second]}
    if kind == "ref":
        return {"$ref": "#/$defs/node"}
    if kind == "types":
        return {"type": rng.sample(["string", "integer", "null", "boolean", "array"], 2), "maxLength": 5, "maxItems": 2, "minimum": 3}
    if kind == "map":
        return {"type": "object", "patternProperties": {"^s_": {"type": "string", "maxLength": 6}, "^n_": {"type": "integer"}},
                "additionalProperties": rng.choice([False, {"type": "boolean"}]), "maxProperties": rng.randint(0, 4)}
    if kind == "if":
        return {"type": "object", "properties": {"on": {"type": "boolean"}, "level": {"type": "integer", "minimum": 0, "maximum": 9}},
                "if": {"properties": {"on": {"const": True}}, "required": ["on"]}, "then": {"required": ["level"]},
                "additionalProperties": False}
    return make_object(rng, depth)


def make_object(rng, depth):
    names = rng.sample(NAMES, rng.randint(0, 5))
    made = {"type": "object", "properties": {name: make(rng, depth + 1) for name in names},
            "required": [name for name in names if rng.random() < 0.6]}
    if rng.random() < 0.7:
        made["additionalProperties"] = False
    elif rng.random() < 0.5:
        made["additionalProperties"] = {"type": "integer"}
    if rng.random() < 0.2:
        made["maxProperties"] = len(made["required"]) + rng.randint(0, 2)
    return made


def equal(a, b):
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return type(a) in (int, float) and type(b) in (int, float) and a == b or type(a) is type(b) and a == b


def is_type(value, name):
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {"null": value is None, "boolean": isinstance(value, bool), "string": isinstance(value, str), "number": number,
            "integer": number and value == int(value), "array": isinstance(value, list), "object": isinstance(value, dict)}[name]


def format_is(value, name):
    try:
        if name == "date":
            return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.A)) and (value[:4] == "0000" or bool(datetime.date.fromisoformat(value)))
        if name in ("time", "date-time"):
            day, _, time = value.upper().partition("T") if name == "date-time" else ("2000-01-01", "T", value.upper())
            clock = re.fullmatch(r"(\d\d):(\d\d):(\d\d)(\.\d+)?(Z|[+-](\d\d):(\d\d))", time, re.A)
            return (format_is(day, "date") and bool(clock) and int(clock[1]) < 24 and int(clock[2]) < 60 and int(clock[3]) < 60
                    and (clock[5] == "Z" or int(clock[6]) < 24 and int(clock[7]) < 60))
        if name == "uuid":
            return bool(re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", value))
        if name == "ipv4":
            parts = value.split(".")
            return len(parts) == 4 and all(part.isascii() and part.isdigit() and int(part) < 256 and str(int(part)) == part for part in parts)
        if name == "duration":
            return value[:1] == "P" and value[-1:] not in "PT" and bool(re.fullmatch(
                r"P(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?)", value, re.A))
    except ValueError:
        return False
    raise SystemExit(f"no check for format {name}")


def valid(value, schema, root):
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and not valid(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root):
        return False
    types = schema.get("type")
    if types and not any(is_type(value, name) for name in ([types] if isinstance(types, str) else types)):
        return False
    if "enum" in schema and not any(equal(value, item) for item in schema["enum"]):
        return False
    if "const" in schema and not equal(value, schema["const"]):
        return False
    if not all(valid(value, part, root) for part in schema.get("allOf", [])):
        return False
    if "anyOf" in schema and not any(valid(value, part, root) for part in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(valid(value, part, root) for part in schema["oneOf"]) != 1:
        return False
    if "if" in schema and not valid(value, schema.get("then" if valid(value, schema["if"], root) else "else", True), root):
        return False
    if is_type(value, "number"):
        if ("minimum" in schema and value < schema["minimum"] or "maximum" in schema and value > schema["maximum"]
                or "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]
                or "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"] or "multipleOf" in schema and value % schema["multipleOf"]):
            return False
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return False
        # Python's $ also matches before a line end, and its \\d and \\w are Unicode's
        if "pattern" in schema and not re.search(schema["pattern"].replace("$", "\\Z"), value, re.A):
            return False
        if "format" in schema and not format_is(value, schema["format"]):
            return False
    if isinstance(value, list):
        prefix = schema.get("prefixItems", [])
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return False
        if not all(valid(item, prefix[i] if i < len(prefix) else schema.get("items", True), root) for i, item in enumerate(value)):
            return False
    if isinstance(value, dict):
        if not set(schema.get("required", [])) <= value.keys() or len(value) > schema.get("maxProperties", len(value)):
            return False
        for name, item in value.items():
            parts = [schema["properties"][name]] if name in schema.get("properties", {}) else []
            parts += [part for pattern, part in schema.get("patternProperties", {}).items() if re.search(pattern, name)]
            if not all(valid(item, part, root) for part in parts or [schema.get("additionalProperties", True)]):
                return False
    return True


def main():
    runs, model, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 1
    process = subprocess.Popen([runs, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    counts, wrong = collections.Counter(), 0
    for number in range(count):
        rng = random.Random(f"{seed}.{number}")
        schema = make(rng)
        schema["$defs"] = {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
                                    "required": ["v"], "additionalProperties": False}}
        request = {"kind": "schema", "text": json.dumps(schema), "prompt": rng.choice(["Once upon a time", "{", "Answer: ", "The cat"]),
                   "seed": rng.randint(0, 2**40), "temperature": rng.choice([0, 0.7, 1, 2, 5]), "max_tokens": rng.choice([60, 150])}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"run {seed}.{number}: grammar_runs ended: {request}")
        answer = json.loads(line)
        if "refused" in answer:
            counts["refused: " + re.sub(r'[0-9"#].*', "…", answer["why"].split(": ")[-1])] += 1
            # only these are expected of the schemas above
            if not re.search(r"no text can follow|oneOf is not supported|automaton of more than|not is not supported", answer["why"]):
                wrong += 1
                print(f"FAILED run {seed}.{number}: {answer['why']}\n  {request['text']}")
            continue
        counts[answer["end"]] += 1
        if answer["end"] not in ("grammar", "token"):
            continue
        text = bytes.fromhex(answer["hex"])
        try:
            value = json.loads(text.decode())
            good = valid(value, schema, schema)
        except (ValueError, RecursionError) as error:
            value, good = error, False
        if not good:
            wrong += 1
            print(f"WRONG run {seed}.{number}: {text!r}\n  {request['text']}")
    process.stdin.close()
    process.wait()
    parsed = counts["grammar"] + counts["token"]
    print(f"{count} runs: {parsed} complete, read back and valid; " + ", ".join(f"{n} {what}" for what, n in counts.most_common() if what not in ("grammar", "token")))
    print(f"{wrong} wrong")
    sys.exit(bool(wrong) or parsed < count // 4)


if __name__ == "__main__":
    main()
