"""Bodies of znodes, as docs/protocol.md describes them."""
import json


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def encode_worker(ip, port, worker_id=None):
    """A WorkerInfo with an empty NodeInfo."""
    known = b"" if worker_id is None else b"\x08" + varint(worker_id)
    ip = ip.encode()
    return known + b"\x12" + varint(len(ip)) + ip + b"\x18" + varint(port) + b"\x22\x00"


def decode_worker(message):
    """Returns ip, port and id of a WorkerInfo; the id is None if it is not in it. Of one that is none: no address."""
    try:
        found = fields_of(message)
        return found.get(2, b"").decode(), int(found.get(3, 0)), found.get(1)
    except (IndexError, ValueError, AttributeError):
        return "", 0, None


def fields_of(message):
    """The fields of a protobuf message by number: integers, and bytes of what has a length."""
    found, at = {}, 0

    def number():
        nonlocal at
        n, shift = 0, 0
        while True:
            byte = message[at]
            at, n, shift = at + 1, n | (byte & 127) << shift, shift + 7
            if byte < 128:
                return n
    while at < len(message):
        key = number()
        found[key >> 3] = number()
        if key & 7 == 2:  # what it says is a length
            n = found[key >> 3]
            found[key >> 3] = message[at:at + n]
            at += n
    return found


def raw_fields(text):
    """The fields of a JSON object as they are written: whoever writes a record again keeps what it does not know."""
    decoder, found, at = json.JSONDecoder(), {}, text.index("{") + 1
    while text[at:].lstrip(" \n\r\t,")[:1] != "}":
        at = len(text) - len(text[at:].lstrip(" \n\r\t,"))
        key, at = decoder.raw_decode(text, at)
        at = len(text) - len(text[at:].lstrip(" \n\r\t:"))
        start = at
        _, at = decoder.raw_decode(text, at)
        found[key] = text[start:at]
    return found
