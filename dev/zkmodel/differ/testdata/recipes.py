"""recipes.py HOST:PORT runs the recipes of kazoo, with several clients each, on a ZooKeeper that holds nothing else.

It prints what came of them, one line a fact. Every line is determined: what chance decides is counted or sorted. So a
real server and a model must give the same lines.
"""
import faulthandler
import subprocess
import sys
import threading
import time

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import CancelledError, KazooException, LockTimeout
from kazoo.protocol.connection import _CONNECTION_DROP
from kazoo.protocol.states import ZnodeStat
from kazoo.recipe.barrier import Barrier, DoubleBarrier
from kazoo.recipe.watchers import ChildrenWatch, DataWatch
from kazoo.security import make_acl, make_digest_acl

LIMIT = 120  # seconds that anything may take on a busy machine


class Section:
    """A recipe: clients of its own, and a root of its own."""

    def __init__(self, name):
        self.name, self.root, self.open = name, "/" + name, []

    def client(self, timeout=60.0, **options):
        c = KazooClient(hosts=sys.argv[1], timeout=timeout, **options)
        c.start(timeout=LIMIT)
        self.open.append(c)
        return c

    def clients(self, n):
        return [self.client() for _ in range(n)]

    def say(self, *facts):
        print(self.name + ":", *facts, flush=True)

    def attempt(self, what, *args, **options):
        """Says what a call returns, or the name of its error."""
        try:
            result = what(*args, **options)
        except KazooException as e:
            result = type(e).__name__
        if isinstance(result, ZnodeStat):
            result = "version", result.version, "aversion", result.aversion
        self.say(what.__name__, *args, "->", result)

    def end(self):
        for c in self.open:
            c.stop()
            c.close()


def until(fact):
    """Waits until fact() is true."""
    late = time.monotonic() + LIMIT
    while not fact():
        if time.monotonic() > late:
            raise RuntimeError("did not happen in %d s" % LIMIT)
        time.sleep(0.01)


def together(functions):
    """Runs functions at the same time. It returns what they returned, in their order."""
    results = [None] * len(functions)

    def run(i, f):
        try:
            results[i] = f()
        except Exception as e:  # for the reader of the lines
            results[i] = repr(e)

    threads = [threading.Thread(target=run, args=(i, f), daemon=True) for i, f in enumerate(functions)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(LIMIT)
    return results


class Room:
    """Counts who is inside at the same time."""

    def __init__(self):
        self.mutex, self.inside, self.most, self.visits = threading.Lock(), 0, 0, 0

    def __enter__(self):
        with self.mutex:
            self.inside += 1
            self.visits += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_):
        with self.mutex:
            self.inside -= 1


def start(f):
    thread = threading.Thread(target=f, daemon=True)
    thread.start()
    return thread


def lock(s):
    a, b, c, d = s.clients(4)
    path, order = s.root, []

    def take(client, name):
        with client.Lock(path, name):
            order.append(name)

    first = a.Lock(path, "first")
    s.say("first", first.acquire())
    threads = []
    for n, (client, name) in enumerate([(b, "second"), (c, "third"), (d, "fourth")]):
        threads.append(start(lambda: take(client, name)))
        until(lambda: len(first.contenders()) == n + 2)
    s.say("contenders", first.contenders())
    s.say("not blocking", b.Lock(path, "hasty").acquire(blocking=False))
    try:
        b.Lock(path, "patient").acquire(timeout=0.2)
    except LockTimeout:
        s.say("LockTimeout")
    s.say("contenders", first.contenders())
    first.release()
    for t in threads:
        t.join(LIMIT)
    s.say("order", order)
    room, total = Room(), [0]

    def work(client):
        for _ in range(6):
            with client.Lock(path), room:
                total[0] += 1

    together([lambda c=c: work(c) for c in s.open])
    s.say("contention: visits", room.visits, "at once", room.most, "total", total[0], "left", a.get_children(path))
    held, waiting = a.Lock(path, "held"), b.Lock(path, "cancelled")
    held.acquire()
    got = []

    def wait():
        try:
            got.append(waiting.acquire())
        except CancelledError:
            got.append("CancelledError")

    thread = start(wait)
    until(lambda: len(held.contenders()) == 2)
    waiting.cancel()
    thread.join(LIMIT)
    s.say("cancelled", got, held.contenders())


def readers(s):
    a, b, c = s.clients(3)
    one, two, writer = a.ReadLock(s.root, "one"), b.ReadLock(s.root, "two"), c.WriteLock(s.root, "writer")
    s.say("readers", one.acquire(timeout=LIMIT), two.acquire(timeout=LIMIT))
    s.say("writer", writer.acquire(blocking=False))
    thread = start(writer.acquire)
    until(lambda: len(one.contenders()) == 3)
    s.say("a reader after the writer", b.ReadLock(s.root, "three").acquire(blocking=False))
    one.release(), two.release()
    thread.join(LIMIT)
    s.say("writer", writer.is_acquired)


def dying(s):
    """A process that holds a lock is killed: its session expires, and the next one gets the lock."""
    a = s.client()
    child = subprocess.Popen([sys.executable, __file__, sys.argv[1], "hold", s.root], stdout=subprocess.PIPE)
    s.say("child", child.stdout.readline())
    mine = a.Lock(s.root, "waiter")
    gone = threading.Event()
    thread = start(mine.acquire)
    until(lambda: len(mine.contenders()) == 2)
    s.say("contenders", mine.contenders(), a.Party(s.root + "-party").__len__())

    @a.ChildrenWatch(s.root + "-party")
    def watch(children):
        if not children:
            gone.set()

    child.kill()
    child.wait()
    thread.join(LIMIT)
    s.say("after its death", mine.is_acquired, mine.contenders(), gone.wait(LIMIT), len(a.Party(s.root + "-party")))


def hold(address, path):
    """The child of dying."""
    c = KazooClient(hosts=address, timeout=2.0)
    c.start(timeout=LIMIT)
    c.Lock(path, "child").acquire()
    c.Party(path + "-party", "child").join()
    print("holds", flush=True)
    time.sleep(LIMIT)


def semaphore(s):
    clients, room = s.clients(4), Room()
    two = threading.Barrier(2)

    def work(client, first):
        with client.Semaphore(s.root, max_leases=2), room:
            if first:
                two.wait(LIMIT)
        for _ in range(3):
            with client.Semaphore(s.root, max_leases=2), room:
                pass

    together([lambda i=i, c=c: work(c, i < 2) for i, c in enumerate(clients)])
    s.say("visits", room.visits, "at once", room.most, "data", clients[0].get(s.root)[0])
    one = clients[0].Semaphore(s.root, "one", max_leases=2)
    two = clients[1].Semaphore(s.root, "two", max_leases=2)
    s.say(one.acquire(), two.acquire(), clients[2].Semaphore(s.root, "three", max_leases=2).acquire(blocking=False))
    s.say("holders", sorted(one.lease_holders()))
    try:
        clients[3].Semaphore(s.root, max_leases=3).acquire()
    except ValueError as e:
        s.say("ValueError", e)


def election(s):
    clients, led = s.clients(3), []
    elections = [c.Election(s.root, "candidate %d" % i) for i, c in enumerate(clients)]
    done = threading.Event()
    threads = []
    for i, e in enumerate(elections):
        threads.append(start(lambda: e.run(lambda n: (led.append(n), done.wait(LIMIT)), i)))
        until(lambda: len(elections[0].contenders()) == i + 1)
    until(lambda: led)
    s.say("contenders", elections[0].contenders(), "led", led)
    done.set()
    for t in threads:
        t.join(LIMIT)
    s.say("led", led, "contenders", elections[0].contenders())


def barriers(s):
    clients = s.clients(3)
    gate = Barrier(clients[0], s.root + "/gate")
    gate.create()
    s.say("wait", Barrier(clients[1], s.root + "/gate").wait(0.2))
    released = []
    waiting = [start(lambda c=c: released.append(Barrier(c, s.root + "/gate").wait(LIMIT))) for c in clients[1:]]
    s.say("removed", gate.remove(), gate.remove())
    for t in waiting:
        t.join(LIMIT)
    s.say("released", released, Barrier(clients[1], s.root + "/gate").wait(LIMIT))
    inside = []

    def pass_through(i, c):
        both = DoubleBarrier(c, s.root + "/both", 3, "member %d" % i)
        both.enter()
        inside.append(i)
        until(lambda: len(inside) == 3)
        both.leave()
        return len(c.get_children(s.root + "/both"))

    threads = [start(lambda i=i: pass_through(i, clients[i])) for i in range(2)]
    until(lambda: clients[2].exists(s.root + "/both") and len(clients[2].get_children(s.root + "/both")) == 2)
    s.say("inside while one is missing", inside)
    s.say("left", pass_through(2, clients[2]))
    for t in threads:
        t.join(LIMIT)
    s.say("inside", sorted(inside), clients[0].get_children(s.root + "/both"))


def party(s):
    clients = s.clients(4)
    for kind, path in (("Party", "/deep"), ("ShallowParty", "/shallow")):
        members = [getattr(c, kind)(s.root + path, "member%d" % i) for i, c in enumerate(clients)]
        together([m.join for m in members])
        s.say(kind, len(members[0]), sorted(members[1]))
        members[2].leave()
        s.say(kind, len(members[0]), sorted(members[1]))
    clients[3].stop()
    deep, shallow = clients[0].Party(s.root + "/deep"), clients[0].ShallowParty(s.root + "/shallow")
    s.say("after a session", sorted(deep), sorted(shallow))


def counter(s):
    clients = s.clients(4)

    def count(c):
        counter = c.Counter(s.root + "/whole")
        for _ in range(10):
            counter += 3
            counter -= 1

    together([lambda c=c: count(c) for c in clients])
    data, stat = clients[0].get(s.root + "/whole")
    s.say("contention", clients[1].Counter(s.root + "/whole").value, data, "version", stat.version)
    part = clients[0].Counter(s.root + "/part", default=1.5)
    part += 0.25
    s.say("float", part.value, clients[1].Counter(s.root + "/part", default=0.0).value)
    java = clients[0].Counter(s.root + "/java", support_curator=True)
    java += 258
    s.say("curator", java.value, clients[1].get(s.root + "/java")[0])


def queue(s):
    clients = s.clients(4)
    put = clients[0].Queue(s.root)
    for i in range(12):
        put.put(b"task %02d" % i, priority=100 - i // 4)
    s.say(len(put), sorted(clients[1].get_children(s.root))[:5])
    s.say([put.get() for _ in range(5)])
    together([lambda c=c, n=n: [c.Queue(s.root).put(b"%d of %d" % (i, n)) for i in range(10)]
              for n, c in enumerate(clients)])

    def drain(c):
        mine, q = [], c.Queue(s.root)
        while True:
            task = q.get()
            if task is None:
                return mine
            mine.append(task)

    got = sum(together([lambda c=c: drain(c) for c in clients]), [])
    s.say("got", len(got), "distinct", len(set(got)), "left", len(put), sorted(got)[:3], put.get())


def locking_queue(s):
    a, b = s.clients(2)
    one, two = a.LockingQueue(s.root), b.LockingQueue(s.root)
    one.put(b"late", priority=200)
    one.put_all([b"first", b"second"], priority=50)
    s.say(len(one), one.get(), two.get(), one.holds_lock(), two.holds_lock())
    s.say("again", one.get(), "released", one.release(), one.release(), one.holds_lock())
    s.say("consumed", two.consume(), two.consume(), len(one))
    s.say(two.get(timeout=LIMIT), two.consume(), two.get(timeout=LIMIT))
    c = s.client()
    three, got = c.LockingQueue(s.root), []
    s.say("nothing", three.get(timeout=0.2))
    thread = start(lambda: got.append(three.get(timeout=LIMIT)))
    b.stop()  # its session ends, and with it the lock
    thread.join(LIMIT)
    s.say("from the one that left", got, three.consume(), len(one))


def watches(s):
    a, b = s.clients(2)
    seen = []
    DataWatch(a, s.root + "/data", lambda data, stat, event: seen.append(
        ("data", data, stat and stat.version, event and (event.type, event.state, event.path))))
    until(lambda: len(seen) == 1)
    for i, change in enumerate([
            lambda: b.create(s.root + "/data", b"one", makepath=True), lambda: b.set(s.root + "/data", b"two"),
            lambda: b.set(s.root + "/data", b"three"), lambda: b.delete(s.root + "/data"),
            lambda: b.create(s.root + "/data", b"")]):
        change()
        until(lambda: len(seen) == i + 2)
    for line in seen:
        s.say(*line)
    del seen[:]
    ChildrenWatch(a, s.root, lambda children, event: seen.append(
        ("children", sorted(children), event and (event.type, event.state, event.path))), send_event=True)
    for i, change in enumerate([
            lambda: b.create(s.root + "/x"), lambda: b.create(s.root + "/y-", sequence=True),
            lambda: b.delete(s.root + "/x"), lambda: b.create(s.root + "/z", ephemeral=True), b.stop]):
        change()
        until(lambda: len(seen) == i + 2)
    for line in seen:
        s.say(*line)


def stat(c, path):
    data, st = c.get(path)
    return (data, "version", st.version, "cversion", st.cversion, "aversion", st.aversion, "length", st.data_length,
            "children", st.children_count, "ephemeral", st.owner_session_id == c.client_id[0],
            "changed since", st.mzxid > st.czxid, st.last_modified_transaction_id > st.pzxid,
            "created just now", abs(time.time() - st.created) < 3600)


def transactions(s):
    a, b = s.clients(2)
    a.create(s.root, b"root")

    def commit(*steps):
        t = a.transaction()
        for name, *args in steps:
            getattr(t, name)(*args)
        s.say([r if isinstance(r, (str, bool)) else type(r).__name__ if isinstance(r, Exception) else r.version
               for r in t.commit()])

    commit(("create", s.root + "/a", b"1"), ("create", s.root + "/n-", b"", None, False, True),
           ("set_data", s.root + "/a", b"2", 0), ("check", s.root + "/a", 1))
    commit(("create", s.root + "/b", b""), ("create", s.root + "/n-", b"", None, True, True),
           ("delete", s.root + "/nowhere"), ("check", s.root + "/a", 1))
    commit(("create", s.root + "/n-", b"", None, False, True), ("delete", s.root + "/a", 1))
    commit(("check", s.root, 7), ("create", s.root + "/a"))
    commit(("create", s.root + "/a", b""), ("create", s.root + "/a/e", b"", None, True), ("delete", s.root + "/a"))
    commit(("create", s.root + "/e", b"", None, True), ("create", s.root + "/e/child"))
    commit(("delete", s.root, 0))
    commit()
    s.say(sorted(b.get_children(s.root)), *stat(b, s.root))

    a.create(s.root + "/sum", b"0")

    def add(c):
        for _ in range(8):
            while True:
                data, st = c.get(s.root + "/sum")
                t = c.transaction()
                t.check(s.root + "/sum", st.version)
                t.set_data(s.root + "/sum", b"%d" % (int(data) + 1))
                t.create(s.root + "/sum/by-", sequence=True)
                if not any(isinstance(r, Exception) for r in t.commit()):
                    break

    together([lambda c=c: add(c) for c in [a, b] + s.clients(2)])
    names = sorted(a.get_children(s.root + "/sum"))
    s.say("contention", *stat(b, s.root + "/sum"), len(names), names[0], names[-1])


def calls(s):
    a, b = s.clients(2)
    p = s.root
    for what, *args in [
            (a.ensure_path, p + "/x/y"), (a.create, p + "/x"), (a.create, p + "/no/parent"), (a.delete, p + "/x"),
            (a.create, p + "/e", b"", None, True), (b.create, p + "/e/child"), (a.set, p + "/x", b"", 5),
            (a.delete, p + "/nowhere"), (a.delete, p + "/x/y", 3), (a.get, p + "/nowhere"), (a.exists, p + "/nowhere"),
            (a.get_children, p + "/nowhere"), (a.set, p + "/nowhere", b""), (a.sync, p), (a.sync, p + "/nowhere"),
            (a.create, p + "/n-", b"", None, False, True), (a.create, p + "/n-", b"", None, True, True),
            (a.set_acls, p + "/x", [make_acl("nonsense", "x", all=True)]), (b.delete, p + "/x", -1, True),
            (a.exists, p + "/x")]:
        s.attempt(what, *args)
    path, created = a.create(p + "/with-stat", b"data", include_data=True)
    s.say(path, created.version, created.dataLength)
    children, st = b.get_children(p, include_data=True)
    s.say(sorted(children), *stat(a, p))
    s.say("e", *stat(a, p + "/e"), "for another", *stat(b, p + "/e"))
    a.create(p + "/large", b"x" * 1_000_000)
    s.say("large", len(b.get(p + "/large")[0]), *stat(b, p + "/large")[1:])
    together([lambda i=i: [c.create_async(p + "/many-%d-" % i, sequence=True) for _ in range(50)][-1].get()
              for i, c in enumerate([a, b])])
    until(lambda: len(a.get_children(p)) == 105)
    s.say("many", sorted(int(n[-10:]) for n in a.get_children(p) if n.startswith("many")) == list(range(6, 106)))


def access(s):
    alice, nobody = s.client(auth_data=[("digest", "alice:secret")]), s.client()
    late = s.client()
    acl = [make_digest_acl("alice", "secret", all=True)]
    alice.ensure_path(s.root)
    s.say(alice.create(s.root + "/mine", b"secret", acl=acl), alice.get(s.root + "/mine")[0])
    for c in (nobody, late):
        for what, *args in [(c.exists, s.root + "/mine"), (c.set, s.root + "/mine", b""), (c.delete, s.root + "/mine", 7),
                            (c.create, s.root + "/mine/x"), (c.get_children, s.root + "/mine")]:
            s.attempt(what, *args)
        late.add_auth("digest", "alice:secret")
    s.say(late.get(s.root + "/mine")[0], alice.get_acls(s.root + "/mine")[0])
    s.attempt(alice.set_acls, s.root + "/mine", [make_acl("auth", "", all=True)])
    st = alice.set_acls(s.root + "/mine", [make_acl("world", "anyone", read=True), make_acl("auth", "all", all=True)])
    s.say(st.aversion, alice.get_acls(s.root + "/mine")[0], nobody.get_acls(s.root + "/mine")[0])
    s.say(nobody.get(s.root + "/mine")[0])
    s.attempt(nobody.set_acls, s.root + "/mine", acl)
    t = nobody.transaction()
    t.create(s.root + "/free")
    t.set_data(s.root + "/mine", b"")
    s.say([type(r).__name__ for r in t.commit()], nobody.exists(s.root + "/free"))


def reconnect(s):
    """A connection is cut: the session, its ephemeral znodes and its watches go on."""
    a, b = s.clients(2)
    states, seen = [], []
    a.add_listener(states.append)
    a.create(s.root, b"0")
    a.create(s.root + "/mine", ephemeral=True)
    DataWatch(a, s.root, lambda data, stat: seen.append(data))
    mine = a.Lock(s.root + "/lock", "a")
    s.say(mine.acquire())
    before = a.client_id
    for i in range(3):
        a._call(_CONNECTION_DROP, a.handler.async_result())
        until(lambda: states == [KazooState.SUSPENDED, KazooState.CONNECTED] * (i + 1))
        b.set(s.root, b"%d" % (i + 1))
        until(lambda: len(seen) >= 1 and seen[-1] == b"%d" % (i + 1))
    s.say(states, "same session", a.client_id == before, *stat(a, s.root + "/mine"))
    s.say(mine.contenders(), b.Lock(s.root + "/lock").acquire(blocking=False))


def expired(s):
    """A session is ended by somebody who has its password: its client learns it and begins another."""
    a, b = s.clients(2)
    states = []
    a.ensure_path(s.root)
    a.create(s.root + "/mine", ephemeral=True)
    a.add_listener(states.append)
    before = a.client_id
    thief = s.client(client_id=before)
    s.say("same session", thief.client_id[0] == before[0])
    thief.stop()
    until(lambda: KazooState.LOST in states and states[-1] == KazooState.CONNECTED)
    s.say("new session", a.client_id[0] != before[0], b.get_children(s.root), a.get_children(s.root))
    known = before[0], a.client_id[0]
    wrong = s.client(client_id=(known[1], b"0123456789abcdef"))
    until(lambda: wrong.connected and wrong.client_id and wrong.client_id[0] not in known)
    s.say("wrong password: another session")


SECTIONS = [lock, readers, dying, semaphore, election, barriers, party, counter, queue, locking_queue, watches,
            transactions, calls, access, reconnect, expired]


def main():
    faulthandler.dump_traceback_later(4 * LIMIT, exit=True)
    if len(sys.argv) > 2 and sys.argv[2] == "hold":
        hold(sys.argv[1], sys.argv[3])
        return
    for section in SECTIONS:
        s = Section(section.__name__)
        try:
            section(s)
        finally:
            s.end()


main()
