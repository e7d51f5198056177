"""A ZooKeeper session with Python's standard library: as much of it as the programs here need.

It does not connect again: who loses the connection calls lost(), and has to end. The session then ends by its timeout.
"""
import socket, struct, threading, time
from collections import namedtuple

CREATE, DELETE, EXISTS, GET, SET, CHILDREN, SYNC, PING, CHECK, MULTI, CLOSE = 1, 2, 3, 4, 5, 8, 9, 11, 13, 14, -11
NO_NODE, BAD_VERSION, NODE_EXISTS, NOT_EMPTY = -101, -103, -110, -111
PERSISTENT, EPHEMERAL, SEQUENTIAL = 0, 1, 2  # SEQUENTIAL is added to one of the others

Stat = namedtuple("Stat", "czxid mzxid ctime mtime version cversion aversion owner length children pzxid")
STAT = struct.Struct(">qqqqiiiqiiq")


class Refused(Exception):
    """Nothing was changed, because of the operation with this index: code is one of the errors above."""

    def __init__(self, index, code):
        super().__init__(f"operation {index}: error {code}")
        self.index, self.code = index, code


class ZooKeeper:
    """One session. Its methods raise OSError when the connection is lost; then a write may have happened or not."""

    def __init__(self, server, timeout_ms, session=(0, bytes(16))):
        """With the id and password of a session, connects to that one again."""
        self.xid, self.replies, self.changed, self.closed = 0, {}, set(), None
        self.news = threading.Condition()  # of replies, changed and closed
        host, port = server.rsplit(":", 1)
        self.sock = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_ms / 1000)
        self.send(struct.pack(">iqiqi16s", 0, 0, timeout_ms, session[0], 16, session[1]))
        _, granted, self.id, _, password = struct.unpack(">iiqi16s", self.receive()[:36])
        if self.id == 0 or session[0] not in (0, self.id):
            raise ConnectionError("the session has ended")
        self.session = self.id, password
        self.timeout = granted / 1000
        self.sock.settimeout(self.timeout * 2 / 3)
        self.lost = lambda: None
        threading.Thread(target=self.read, daemon=True).start()

    def keep(self, lost):
        """Keeps the session alive. Calls lost when it is lost: by its end somebody else may do what this one did."""
        self.lost = lost
        threading.Thread(target=self.heartbeat, daemon=True).start()

    def heartbeat(self):
        while self.closed is None:
            time.sleep(self.timeout / 3)
            try:
                with self.news:
                    self.send(struct.pack(">ii", -2, PING))
            except OSError:
                return  # the other thread learns it too

    def send(self, body):
        self.sock.sendall(struct.pack(">i", len(body)) + body)

    def receive(self):
        def exactly(n):
            data = b""
            while len(data) < n:
                part = self.sock.recv(n - len(data))
                if not part:
                    raise ConnectionError("ZooKeeper closed the connection")
                data += part
            return data
        return exactly(struct.unpack(">i", exactly(4))[0])

    def read(self):
        """Sorts what the server sends: replies by the number of their request, and the paths of events."""
        try:
            while True:
                reply = self.receive()
                xid, _, error = struct.unpack(">iqi", reply[:16])
                with self.news:
                    if xid == -1:
                        self.changed.add(reply[28:].decode())
                    elif xid > 0:
                        self.replies[xid] = error, reply[16:]
                    self.news.notify_all()
        except OSError as e:
            with self.news:
                self.closed = e
                self.news.notify_all()
            self.lost()

    def call(self, op, body=b""):
        """Returns error code and body of the reply."""
        with self.news:
            if self.closed:
                raise ConnectionError(str(self.closed))
            self.xid += 1
            xid = self.xid
            self.send(struct.pack(">ii", xid, op) + body)
            self.news.wait_for(lambda: xid in self.replies or self.closed)
            if xid not in self.replies:
                raise ConnectionError(str(self.closed))
            return self.replies.pop(xid)

    def close(self):
        """Ends the session, and with it its ephemeral znodes."""
        self.lost = lambda: None
        try:
            self.call(CLOSE)
        except OSError:
            pass  # it ends by its timeout

    def wait(self, paths, seconds=None, until=lambda: False):
        """Waits for an event of one of these paths; each needs a watch. Returns whether one came, or until() holds."""
        with self.news:
            def come():
                return not self.changed.isdisjoint(paths) or until() or self.closed
            self.news.wait_for(come, seconds)
            return bool(come())

    def wake(self):
        """Lets wait look at until() again. A signal handler may call it."""
        with self.news:
            self.news.notify_all()

    def sync(self, path):
        self.call(SYNC, string(path))

    def read_stat(self, op, path, watch):
        """Returns body and Stat; both None if there is no such znode. With watch, changed gets the path at an event."""
        self.changed.discard(path)
        error, reply = self.call(op, string(path) + bytes([watch]))
        if error == NO_NODE:
            return None, None
        if error:
            raise Refused(0, error)
        n = 0 if op == EXISTS else 4 + max(0, struct.unpack(">i", reply[:4])[0])
        return reply[4:n], Stat(*STAT.unpack(reply[n:n + STAT.size]))

    def get(self, path, watch=False):
        return self.read_stat(GET, path, watch)

    def exists(self, path, watch=False):
        """Returns the Stat or None. Its watch also tells that the znode was created."""
        return self.read_stat(EXISTS, path, watch)[1]

    def children(self, path, watch=False):
        """Returns the sorted names, or None if there is no such znode."""
        self.changed.discard(path)
        error, reply = self.call(CHILDREN, string(path) + bytes([watch]))
        if error == NO_NODE:
            return None
        if error:
            raise Refused(0, error)
        names, at = [], 4
        for _ in range(struct.unpack(">i", reply[:4])[0]):
            n = struct.unpack(">i", reply[at:at + 4])[0]
            names.append(reply[at + 4:at + 4 + n].decode())
            at += 4 + n
        return sorted(names)

    def multi(self, *ops):
        """Returns for each operation the path that it created, the Stat after a set, or None."""
        body = b"".join(struct.pack(">i?i", op, False, -1) + part for op, part in ops)
        error, reply = self.call(MULTI, body + struct.pack(">i?i", -1, True, -1))
        results, at = [], 0
        while len(reply) - at > 9:
            op, _, code = struct.unpack(">i?i", reply[at:at + 9])
            at += 9
            if op == -1:  # an error of this or another operation: 0 before the one that failed
                if code:
                    raise Refused(len(results), code)
                at += 4
            if op == CREATE:
                n = struct.unpack(">i", reply[at:at + 4])[0]
                results.append(reply[at + 4:at + 4 + n].decode())
                at += 4 + n
            elif op == SET:
                results.append(Stat(*STAT.unpack(reply[at:at + STAT.size])))
                at += STAT.size
            else:
                results.append(None)
        if error:
            raise Refused(0, error)
        return results


def string(s):
    data = s if isinstance(s, bytes) else s.encode()
    return struct.pack(">i", len(data)) + data


def check(path, version):
    return CHECK, string(path) + struct.pack(">i", version)


def create(path, data=b"", flags=PERSISTENT):
    everybody = struct.pack(">ii", 1, 31) + string("world") + string("anyone")
    return CREATE, string(path) + string(data) + everybody + struct.pack(">i", flags)


def set_data(path, data, version):
    return SET, string(path) + string(data) + struct.pack(">i", version)


def delete(path, version):
    return DELETE, string(path) + struct.pack(">i", version)
