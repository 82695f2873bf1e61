"""Program of a sandbox that keeps variables between the turns of a dialogue."""


def handle(payload: bytes) -> bytes:
    return payload


def converse(payload, messages, end_turn) -> None:
    names = {"start": payload.decode()}
    for message in messages:
        try:
            exec(message.decode(), names)
        except Exception as error:
            print(type(error).__name__)
            end_turn(b"-")
        else:
            end_turn(b"+")
