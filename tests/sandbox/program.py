"""Program of a sandbox that executes the code it receives, with names of targets outside."""

import json


def handle(payload: bytes) -> bytes:
    job = json.loads(payload)
    names = {"__name__": "hostile", "world": job["world"], "breaches": []}
    exec(job["code"], names)
    return json.dumps({"breaches": names["breaches"], "said": names.get("said", "")}).encode()
