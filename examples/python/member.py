"""A member of a muster group that knows only docs/protocol/groups.md and Python's standard library.

member.py PATH IDENTITY DUTIES joins the group at PATH, such as /apps/shop, and leads: DUTIES is a folder with an
executable for each duty of type leader that it can do. It takes a seat that never decides. MUSTER_SERVERS are the
ZooKeeper servers, MUSTER_VERSION is the version of the application. After SIGTERM it ends its commands and leaves.

Each command runs under a guard, which ends it when the member has had no answer for too long, also if the member is
frozen or killed by then. When the connection is lost the membership is over: the member ends its commands, closes the
session and joins as a new one.
"""
import json, os, signal, sys, threading, time, uuid

import zookeeper
from executor import seconds
from guard import Command, now
from zookeeper import (BAD_VERSION, CLOSE, EPHEMERAL, NODE_EXISTS, NO_NODE, SEQUENTIAL, Refused, check, create, delete,
                       set_data)

FOLDERS = ["seat", "assigner", "duty", "resigned", "ask"]


class Lost(Exception):
    """The membership is over."""


class Hold:
    """A duty that was taken: version guards the writes of its holder."""

    def __init__(self, epoch, version, command):
        self.epoch, self.version, self.command = epoch, version, command


class Member:
    def __init__(self, path, identity, version, folder):
        self.path, self.identity, self.version, self.folder = path, identity, version, folder
        self.root, self.name = path.rsplit("/", 1)
        self.record_at = f"{self.root}/.muster/group/{self.name}"
        self.servers, self.old, self.stopped = os.environ["MUSTER_SERVERS"].split(","), None, False
        self.zk, self.timeout_ms, self.holds, self.lock = None, 10_000, {}, threading.Lock()

    def connect(self):
        """Opens a session; before that, closes the old one, which may hold this identity and its duties."""
        while not self.stopped:
            self.servers.append(self.servers.pop(0))
            try:
                if self.old:
                    zookeeper.ZooKeeper(self.servers[0], self.timeout_ms, self.old).close()
                    self.old = None
                self.answered, self.passed, self.seen, self.resigned, self.blocked = now(), False, {}, {}, set()
                self.zk = zookeeper.ZooKeeper(self.servers[0], self.timeout_ms)
                self.old, self.timeout = self.zk.session, self.zk.timeout
                return threading.Thread(target=self.keep, args=[self.zk], daemon=True).start()
            except OSError as e:
                if "session has ended" in str(e):
                    self.old = None
                time.sleep(0.2)

    def keep(self, zk):
        """Asks a leader again and again: the guards are told of each answer."""
        while zk is self.zk and zk.closed is None:
            sent = now()
            try:
                zk.sync(self.path)
            except OSError:
                return
            with self.lock:
                self.passed = self.passed or now() - self.answered >= self.timeout / 2
                if zk is not self.zk or self.passed:
                    return zk.wake()
                self.answered = max(self.answered, sent)
                for h in self.holds.values():
                    h.command.tell("a", self.answered)
            time.sleep(self.timeout / 10)

    def within(self):
        """Raises Lost past the limit of a member."""
        self.passed = self.passed or now() - self.answered >= self.timeout / 2
        if self.passed or self.zk.closed is not None:
            raise Lost("no answer for half of the session timeout, or no connection")

    def fresh(self, path):
        """Body and Stat of a znode that the membership depends on. It has a watch."""
        if path not in self.seen or path in self.zk.changed:
            self.seen[path] = self.zk.get(path, watch=True)
        if self.seen[path][1] is None:
            raise Lost(path + " is gone")
        return self.seen[path]

    def join(self):
        """Comes back as a member, or raises Lost to begin again."""
        body, stat = self.zk.get(self.record_at, watch=True)
        if stat is None:
            self.zk.exists(self.record_at, watch=True)
            return self.pause("there is no group " + self.path)
        self.record = json.loads(body)
        group, self.run = self.record["group"], f"{self.root}/.muster/run/{self.record['generation']}"
        if self.record["format"] != 1 or self.record.get("acl", []) not in ([], ["world:anyone:cdrwa"]):
            sys.exit("this group is not for this program")
        wanted = int(seconds(group["timeouts"]["session"]) * 1000)
        if self.timeout_ms != wanted:
            self.timeout_ms = wanted
            raise Lost("the group wants another session timeout")
        if self.record["state"] != "open":
            return self.pause("the members were asked to stop")
        copy, names = self.zk.get(self.run)[0], self.zk.children(self.run)
        known = json.loads(copy or b"{}")  # one that is no JSON ends this program
        own = known.get("group", {})
        if known.get("generation") == self.record["generation"] and (own.get("name"), own.get("root")) != (
                self.name, self.root):
            return self.pause("the generation is another's")
        missing = [f for f in FOLDERS if f not in names]
        if "gate" not in names or 0 < len(missing) < len(FOLDERS):
            return self.pause("a part of the group is missing")
        self.can = sorted(d for d in group.get("leader", {}) if os.access(os.path.join(self.folder, d), os.X_OK))
        self.nonce, self.live = uuid.uuid4().hex, f"{self.path}/{self.identity}"
        live = {"nonce": self.nonce, "version": self.version, "can": self.can, "ready": True}
        try:
            self.seat_at = self.zk.multi(
                check(self.run + "/gate", -1), *[create(f"{self.run}/{f}") for f in missing],
                create(self.live, json.dumps(live), EPHEMERAL),
                create(self.run + "/seat/x-", json.dumps({"identity": self.identity, "nonce": self.nonce}),
                       EPHEMERAL + SEQUENTIAL))[-1]
            return True
        except Refused as e:
            if e.code == NODE_EXISTS and e.index == 1 + len(missing):
                self.zk.exists(self.live, watch=True)
                return self.pause("another process is " + self.identity)
            return self.pause("the group has changed", 1)

    def pause(self, why, limit=5):
        print("waiting:", why, file=sys.stderr, flush=True)
        self.zk.wait([self.record_at, getattr(self, "live", "")], limit, lambda: self.stopped)
        return False

    def look(self):
        """Reads what the membership depends on. Returns the duties that this member should have."""
        body, self.record_stat = self.fresh(self.record_at)
        record, own = json.loads(body), {}
        for path in self.live, self.seat_at:
            text, stat = self.fresh(path)
            own = json.loads(text)
            if stat.owner != self.zk.id or own.get("nonce") != self.nonce:
                raise Lost("somebody wrote to " + path)
        if record["generation"] != self.record["generation"]:
            raise Lost("the group was made anew")
        self.seat_stat, self.drain = stat, seconds(record["group"]["timeouts"]["drain"])
        self.stopped = self.stopped or record["state"] == "terminating"
        declared = set() if self.stopped else set(record["group"].get("leader", {}))
        return declared & set(own.get("duties", []))

    def take(self, duty):
        at, nonce = f"{self.run}/duty/{duty}", uuid.uuid4().hex
        taken = {"nonce": nonce, "identity": self.identity, "version": self.version}
        guards = [check(self.run + "/gate", -1), check(self.record_at, self.record_stat.version),
                  check(self.seat_at, self.seat_stat.version)]
        for first in False, True, False, False:
            made = [create(at)] if first else []
            self.within()
            try:
                stat = self.zk.multi(*guards, *made, set_data(at, json.dumps(taken), -1),
                                     create(at + "/held", json.dumps(taken), EPHEMERAL))[3 + first]
                return self.start(duty, stat)
            except Refused as e:
                if e.code == NODE_EXISTS and e.index == 4 + first:  # somebody has it; the event wakes this member
                    if self.zk.exists(at + "/held", watch=True) is None:
                        continue
                    return self.blocked.add(at + "/held")
                if e.index in (1, 2) and e.code == BAD_VERSION:
                    return  # an event is on its way
                if not (first and e.code == NODE_EXISTS or not first and e.index == 3 and e.code == NO_NODE):
                    raise Lost(str(e))

    def start(self, duty, stat):
        self.within()
        env = {**os.environ, "MUSTER_DUTY": duty, "MUSTER_EPOCH": str(stat.mzxid), "MUSTER_GROUP": self.name,
               "MUSTER_ROOT": self.root, "MUSTER_IDENTITY": self.identity, "MUSTER_VERSION": self.version}
        with self.lock:
            command = Command(os.path.join(self.folder, duty), env, self.timeout, self.answered, self.zk.wake)
            self.holds[duty] = Hold(stat.mzxid, stat.version, command)
        self.zk.exists(f"{self.run}/duty/{duty}/held", watch=True)

    def give_back(self, duty, wanted):
        """After its command has ended: resigns, unless the duty was to be given back."""
        h, at = self.holds[duty], f"{self.run}/duty/{duty}"
        ops = [check(self.run + "/gate", -1), check(at, h.version), check(at + "/held", 0)]
        if wanted and not h.command.asked:
            blame = h.command.code != 0
            text = {"seat": self.seat_at.rsplit("/", 1)[1], "identity": self.identity, "duty": duty, "blame": blame,
                    "because": f"its command ended with {h.command.code}"}
            ops += [check(self.seat_at, self.seat_stat.version),
                    create(self.run + "/resigned/r-", json.dumps(text), SEQUENTIAL)]
            self.resigned[duty] = self.seat_stat.version
        try:
            self.zk.multi(*ops, delete(at + "/held", -1))
        except Refused as e:
            if e.index == 3 and e.code == BAD_VERSION:
                return  # the assigner has written the seat: look first
            if e.index not in (1, 2):
                raise Lost(str(e))
        with self.lock:
            del self.holds[duty]

    def serve(self):
        """Is a member until it is stopped."""
        while True:
            self.within()
            wanted, watched = self.look(), [self.record_at, self.live, self.seat_at]
            for duty, h in list(self.holds.items()):
                held = f"{self.run}/duty/{duty}/held"
                watched.append(held)
                if held in self.zk.changed:
                    stat = self.zk.exists(held, watch=True)
                    if stat and stat.version:
                        raise Lost("somebody wrote to " + held)
                    if stat is None or stat.owner != self.zk.id:
                        h.command.kill()
                if duty not in wanted:
                    h.command.ask(self.drain)
                if h.command.over and not self.stopped:
                    self.give_back(duty, duty in wanted)
            if self.stopped and all(h.command.over for h in self.holds.values()):
                return
            for duty in sorted(wanted - self.holds.keys()):
                held = f"{self.run}/duty/{duty}/held"
                watched.append(held)
                blocked = held in self.blocked and held not in self.zk.changed
                if self.seat_stat.version > self.resigned.get(duty, -1) and not blocked:
                    self.blocked.discard(held)
                    self.take(duty)
            self.zk.wait(watched, self.timeout / 10, self.woken)

    def woken(self):
        commands = [h.command for h in self.holds.values()]
        if self.stopped:
            return all(c.over for c in commands) or not all(c.asked for c in commands)
        return self.passed or any(c.over for c in commands)

    def end(self):
        """Kills all commands, and waits for their end: nothing may go on when the session is closed."""
        for h in self.holds.values():
            h.command.kill()
        while not all(h.command.over for h in self.holds.values()):
            time.sleep(0.01)
        with self.lock:
            self.holds = {}

    def stop(self, *_):
        self.stopped = True
        if self.zk:
            threading.Thread(target=self.zk.wake).start()  # this thread may have the lock

    def main(self):
        while not self.stopped:
            try:
                self.connect()
                if not self.stopped and self.join():
                    print("joined as", self.seat_at, file=sys.stderr, flush=True)
                    self.serve()
            except (Lost, OSError, Refused) as e:
                print("no member any more:", e, file=sys.stderr, flush=True)
            self.end()
            try:
                if self.zk and self.zk.closed is None:
                    self.zk.call(CLOSE)
                    self.old = None
            except OSError:
                pass


if __name__ == "__main__":
    member = Member(sys.argv[1], sys.argv[2], os.environ["MUSTER_VERSION"], sys.argv[3])
    signal.signal(signal.SIGTERM, member.stop)
    member.main()
