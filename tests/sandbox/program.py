"""A sandbox's program that executes whatever it is sent, with a few names of the world outside to aim at."""

import json


def handle(payload: bytes) -> bytes:
    job = json.loads(payload)
    names = {"__name__": "hostile", "world": job["world"], "breaches": []}
    exec(job["code"], names)
    return json.dumps({"breaches": names["breaches"], "said": names.get("said", "")}).encode()
