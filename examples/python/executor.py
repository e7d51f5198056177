"""An executor of a muster queue that knows only docs/protocol.md and Python's standard library.

executor.py PATH LUA IDENTITY COMMAND... runs COMMAND for each task of the queue at PATH, such as /queues/primes: the
task is its standard input, its standard output is the result; exit code 65 is "do not try again". LUA is the folder
tasks/store/lua of the muster that the others run. MUSTER_SERVERS is one ZooKeeper server. It runs one command at a
time. When its session is lost it ends, and what it had goes back; whoever started it starts it again.
"""
import hashlib, json, os, random, re, signal, socket, subprocess, sys, time, uuid
from urllib.parse import urlparse

import zookeeper
from zookeeper import EPHEMERAL, SEQUENTIAL, check, create


class Refused(Exception):
    """An error reply: nothing was changed."""


class Stop(Exception):
    """SIGTERM came while there was nothing to do."""


class Redis:
    """One connection. Any error but Refused leaves the outcome unknown."""

    def __init__(self, url, prefix, lua):
        self.at, self.prefix, self.lua, self.scripts, self.file = urlparse(url), prefix, lua, {}, None

    def connect(self):
        self.sock = socket.create_connection((self.at.hostname, self.at.port or 6379), timeout=15)
        self.file = self.sock.makefile("rb")
        self.command("SELECT", self.at.path.strip("/") or 0)
        info = self.command("INFO").decode()
        version = int(re.search(r"redis_version:(\d+)", info)[1])
        if version < 7 or "maxmemory_policy:noeviction" not in info or "role:master" not in info:
            sys.exit("a queue cannot be on this Redis")

    def command(self, *args):
        if self.file is None:
            self.connect()
        parts = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        try:
            self.sock.sendall(b"".join([b"*%d\r\n" % len(parts)] + [b"$%d\r\n%s\r\n" % (len(p), p) for p in parts]))
            return self.reply()
        except OSError:
            self.file = None
            raise

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    def run(self, script, *args):
        if script not in self.scripts:
            def read(name):
                with open(os.path.join(self.lua, name + ".lua"), "rb") as f:
                    return f.read()
            first, rest = read(script).split(b"\n", 1)
            self.scripts[script] = b"\n".join([first, read("clock"), read("common"), rest])
        text = self.scripts[script]
        try:
            return self.command("EVALSHA", hashlib.sha1(text).hexdigest(), 1, self.prefix + "q", *args)
        except Refused as e:
            if not str(e).startswith("NOSCRIPT"):
                raise
        return self.command("EVAL", text, 1, self.prefix + "q", *args)


def amount(text, units):
    """Reads 1m40s or 256KiB."""
    return sum(float(n) * units[u] for n, u in re.findall(r"([0-9.]+)([a-zA-Zµ]+)", text))


def seconds(text):
    return amount(text, {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9})


def size(text):
    return int(amount(text, {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}))


class Executor:
    def __init__(self, path, lua, identity):
        self.root, name = path.rsplit("/", 1)
        self.record = f"{self.root}/.muster/queue/{name}"
        server = os.environ["MUSTER_SERVERS"].split(",")[0]
        reader = zookeeper.ZooKeeper(server, 10_000)
        body, stat = reader.get(self.record)
        reader.close()
        if stat is None:
            sys.exit("there is no queue " + path)
        record = json.loads(body)
        everybody = record.get("acl", []) in ([], ["world:anyone:cdrwa"])
        if record["format"] != 1 or record["state"] != "open" or not everybody:
            sys.exit("this queue is not for this program")
        self.queue, self.run_folder = record["queue"], f"{self.root}/.muster/run/{record['generation']}"
        self.zk = zookeeper.ZooKeeper(server, int(seconds(self.queue["timeouts"]["session"]) * 1000))
        self.zk.keep(lambda: os.killpg(0, signal.SIGKILL))  # with its command: others have the task then
        nonce = uuid.uuid4().hex
        live = json.dumps({"nonce": nonce, "role": "executor", "host": socket.gethostname(), "parallel": 1})
        seat = json.dumps({"identity": identity, "nonce": nonce, "role": "executor"})
        ops = [check(self.run_folder + "/gate", -1), check(self.record, stat.version)]
        folders = [create(f"{self.run_folder}/{f}") for f in ("seat", "batch", "ended", "health")]
        mine = [create(f"{path}/{identity}", live, EPHEMERAL),
                create(self.run_folder + "/seat/x-", seat, EPHEMERAL + SEQUENTIAL)]
        for first in (False, True) * 3:  # another process may make the folders at the same time
            try:
                self.seat_path = self.zk.multi(*ops, *(folders if first else []), *mine)[-1]
                break
            except zookeeper.Refused as e:
                refused = e
        else:
            sys.exit(f"cannot join: {refused}")
        self.seat = format(self.zk.exists(self.seat_path).czxid, "x")
        self.redis = Redis(self.queue["redis"], "muster:{%s}:" % record["generation"], lua)
        self.id, self.seq, self.results, self.held, self.manifests = path, 0, [], {}, {}
        self.stopped, self.waits = False, False

    def hello(self):
        self.zk.sync(self.seat_path)
        if self.zk.exists(self.seat_path) is None:
            sys.exit("somebody deleted my seat")
        self.seq = max(self.seq, int(self.redis.run("hello", self.seat, self.id, "e", 1)))

    def sync(self, keep):
        """Gives back what is not in keep. Returns what of it is in hand. It comes back with an answer."""
        more, kept = 1, []
        while more:
            self.seq += 2  # above that of a call of which I have no answer
            try:
                more, *kept = self.redis.run("sync", self.seat, self.seq, *[x for f in keep.items() for x in f])
            except (OSError, Refused) as e:
                self.pause(e)
        return {f.decode() for f in kept}

    def leave(self):
        """Gives back what is in hand, and the seat: nobody has to find out that it is gone."""
        more = 1
        while more:
            try:
                more, *_ = self.redis.run("evict", 0, self.seat)
            except (OSError, Refused) as e:
                self.pause(e)
        self.zk.close()

    def pause(self, error):
        """Waits for Redis, and lets my seat in again if that is what Redis wants."""
        known = str(error).startswith(("NOSEAT", "SEQ", "LOADING", "OOM"))
        if isinstance(error, Refused) and not known:
            raise error
        print("again:", error, file=sys.stderr)
        try:
            if isinstance(error, Refused):
                self.hello()
        except OSError:
            pass
        time.sleep(random.uniform(0.1, 0.3))

    def turn(self):
        """Sends results and takes tasks, and comes back with an answer."""
        while True:
            idle, room = (0, 0) if self.stopped else (1, 100_000_000)
            try:
                reply = self.redis.run(
                    "turn", self.seat, self.seq + 1, idle, room, int(seconds(self.queue["backoff"]) * 1000),
                    size(self.queue["max_bytes"]), *[x for r in self.results for x in r])
                self.seq += 1
                for r in self.results:
                    del self.held[r[0]]
                self.results = []
                return reply[0], reply[2]
            except (OSError, Refused) as e:
                self.pause(e)
                kept = self.sync(self.held)
                self.results = [r for r in self.results if r[0] in kept]
                self.held = {f: a for f, a in self.held.items() if f in kept}

    def manifest(self, batch):
        """Is None if the batch has ended or is cancelled."""
        path = f"{self.run_folder}/batch/{batch}"
        if batch not in self.manifests or path in self.zk.changed:
            self.zk.sync(path)
            body, _ = self.zk.get(path, watch=True)
            self.manifests[batch] = json.loads(body) if body else None
        m = self.manifests[batch]
        return m if m and m["state"] != "cancelled" else None

    def execute(self, batch, index, attempt, payload, command):
        """Runs the command for a task, and keeps the result for the next turn."""
        m, begun = self.manifest(batch), time.monotonic_ns()
        if m is None:
            return  # the next sync gives it back
        env = {**os.environ, "MUSTER_BATCH": batch, "MUSTER_TASK": str(index), "MUSTER_ATTEMPT": str(attempt)}
        limit = seconds(m.get("task_timeout") or self.queue["task_timeout"])
        try:
            p = subprocess.run(command, input=payload, stdout=subprocess.PIPE, env=env, timeout=limit)
            outcome, data = {0: ("o", p.stdout), 65: ("d", b"exit code 65")}.get(
                p.returncode, ("r", b"exit code %d" % p.returncode))
            if len(data) > size(self.queue["max_task"]):
                outcome, data = "d", b"its result is larger than max_task"
        except subprocess.TimeoutExpired:
            outcome, data = "r", b"it took longer than task_timeout"
        if data[:1] >= b"\xf8":
            data = b"\xf8" + data
        took = time.monotonic_ns() - begun
        self.results.append((f"{batch}:{index}", f"{attempt}:{outcome}:{took}", data))

    def loop(self, command):
        while not self.stopped:
            due, grants = self.turn()
            for batch, first, attempt, payloads in grants:
                for i, payload in enumerate(payloads):
                    self.held[f"{batch.decode()}:{first + i}"] = attempt
            for batch, first, attempt, payloads in grants:
                for i, payload in enumerate(payloads):
                    if not self.stopped:
                        self.execute(batch.decode(), first + i, attempt, payload, command)
            if len(self.results) < len(self.held):  # of cancelled batches, or I was stopped
                self.held = {r[0]: self.held[r[0]] for r in self.results}
                self.sync(self.held)
            if not grants:
                self.wait(min(due, 10_000) / 1000 if due > 0 else 10 if due else 0.001)

    def wait(self, limit):
        self.waits = True
        try:
            if not self.stopped:
                self.redis.command("BLPOP", self.redis.prefix + "wake:e", limit)
        except OSError:
            pass  # the next turn tells
        except Stop:
            self.redis.file = None
        self.waits = False

    def stop(self, *_):
        """Takes nothing more; the command that runs comes to its end."""
        self.stopped = True
        if self.waits:
            self.waits = False
            raise Stop


def main():
    path, lua, identity, *command = sys.argv[1:]
    if os.getpid() != os.getpgrp():
        os.setpgrp()
    e = Executor(path, lua, identity)
    signal.signal(signal.SIGTERM, e.stop)
    e.hello()
    e.loop(command)
    e.turn()  # the last results
    e.leave()


if __name__ == "__main__":
    main()
