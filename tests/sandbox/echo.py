"""A sandbox's program that answers with its payload, number by number turned round."""


def handle(payload: bytes) -> bytes:
    return payload[: len(payload) // 1000][::-1] * 1000
