"""Program of a sandbox that returns each number of its payload reversed."""


def handle(payload: bytes) -> bytes:
    return payload[: len(payload) // 1000][::-1] * 1000
