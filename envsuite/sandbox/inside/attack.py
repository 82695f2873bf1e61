"""Program of the self-test's sandbox: runs the code it receives and returns whether that broke out."""


def handle(payload: bytes) -> bytes:
    """Returns b"broken" if the code set `broken`, otherwise the error that stopped it."""
    names: dict[str, object] = {}
    try:
        exec(payload.decode(), names)
    except BaseException as error:
        return f"{type(error).__name__}: {error}".encode()[:200]
    return b"broken" if names.get("broken") else b"stopped"
