"""A worker of a muster job that knows only docs/protocol.md and Python's standard library.

worker.py PATH IDENTITY IP:PORT BARRIER COMMAND... joins the job at PATH, such as /jobs/ingest, waits for all workers,
prints the roll, passes round 0 of BARRIER, runs COMMAND, and completes if that ends well. MUSTER_SERVERS is one
ZooKeeper server, MUSTER_RUN the name of the run. The exit codes are muster's. When its session is lost it kills COMMAND
and ends with 8; whoever started it starts it again.
"""
import json, os, signal, struct, subprocess, sys, threading, time, uuid

from bodies import decode_worker, encode_worker
from executor import seconds
from joining import ABORTED, FENCED, LATE, LOST, Ended, Joiner
from zookeeper import BAD_VERSION, EPHEMERAL, NODE_EXISTS, SEQUENTIAL, Refused, check, create, delete, set_data


class Worker(Joiner):
    """A member of the job, from its join on."""

    def transact(self, *ops):
        """One transaction of a member. Another refusal than that of the fencing checks is up to the caller."""
        try:
            return self.zk.multi(self.gate, check(self.by, self.version), *ops)[2:]
        except Refused as e:
            if e.index > 1:
                raise
            raise Ended(FENCED, "somebody else is this worker, or the generation has ended")

    def roll(self):
        """Waits for all, and returns the WorkerInfo of each by its id."""
        last, limit = f"{self.ids}/n-{self.n - 1:010d}", seconds(self.record["job"]["timeouts"]["join"])
        end = time.monotonic() + limit
        while not self.zk.exists(last, watch=True):
            if not self.wait([last], end - time.monotonic()):
                raise Ended(LATE, "not all workers have joined")
        body, stat = self.zk.get(self.job, watch=True)
        if stat.version == 0 and (self.id == self.n - 1 or self.claim["lives"] > 1):
            rows = self.read_ids()
            if self.record["job"].get("roll_format", "protobuf") == "protobuf" and len(rows) < 900_000:
                try:
                    self.transact(set_data(self.job, rows, 0))
                except Refused as e:
                    if e.code != BAD_VERSION:  # another one has written it
                        raise
            body, stat = self.zk.get(self.job, watch=True)
        if stat.version == 0:
            self.wait([self.job], 10)
            body, stat = self.zk.get(self.job)
        if body[:1] != b"\0":  # too large, never written, or text
            body = self.read_ids()
        found, at = {}, 0
        while at < len(body):
            n = struct.unpack(">i", body[at:at + 4])[0]
            ip, port, worker_id = decode_worker(body[at + 4:at + 4 + n])
            found[len(found) if worker_id is None else worker_id] = f"{ip}:{port}"
            at += 4 + n
        return found

    def read_ids(self):
        """The roll as the ids say it."""
        rows = b""
        for i in range(self.n):
            ip, port, _ = decode_worker(self.zk.get(f"{self.ids}/n-{i:010d}")[0])
            info = encode_worker(ip, port, i)
            rows += struct.pack(">i", len(info)) + info
        return rows

    def barrier(self, name, number):
        """Passes a durable round."""
        floor_at, limit = f"{self.g}/barrier/{name}", seconds(self.record["job"]["timeouts"]["barrier"])
        at, end = f"{floor_at}/{number}", time.monotonic() + limit
        while True:
            body, state = self.zk.get(at + "/st", watch=True)
            if state is None:
                if self.make_round(floor_at, number, at):
                    return
                continue
            round_ = json.loads(body)
            if "aborted" in round_:
                raise Ended(ABORTED, f"{name} was aborted: {round_['aborted']}; missing: {round_.get('missing', [])}")
            if round_["mode"] != "durable":
                raise Ended(1, f"{name} is {round_['mode']}")
            token = f"{at}/c/c-{round_['n'] - 1:010d}"
            try:
                self.transact(check(at + "/st", 0), create(f"{at}/a/{self.id}"), create(at + "/c/c-", b"", SEQUENTIAL))
            except Refused as e:
                if e.code != NODE_EXISTS:  # aborted, or released and cleared
                    continue
            decided = self.zk.exists(token, watch=True)
            if decided and decided.length == 0:
                return
            if not decided and not self.wait([token, at + "/st"], end - time.monotonic()):
                self.abort(at, round_, token, f"worker {self.id} waited {limit:g}s")

    def make_round(self, floor_at, number, at):
        """Is true if the round was released and is gone."""
        floor, stat = self.zk.get(floor_at)
        if stat and number < int(floor):
            return self.zk.exists(at + "/st") is None
        first = check(floor_at, stat.version) if stat else create(floor_at, "0")
        state = json.dumps({"n": self.n, "mode": "durable"})
        try:
            self.transact(first, create(at), create(at + "/st", state), create(at + "/a"), create(at + "/c"))
        except Refused:
            pass  # another one makes it, or the floor has risen

    def abort(self, at, round_, token, why):
        there = self.zk.children(at + "/a") or []
        missing = [i for i in range(round_["n"]) if str(i) not in there]
        state = json.dumps({**round_, "aborted": why, "missing": missing})
        counted = f"{at}/c/c-{len(there):010d}"
        ops = [create(counted)] if counted != token else []
        try:
            self.transact(set_data(at + "/st", state, 0), *ops, create(token, "aborted"))
        except Refused:
            pass  # released, aborted by another one, or one more has arrived: look again

    def execute(self, command):
        """Runs the command. Returns how it ended, as the claim says it, and what asked it to stop."""
        env = {"MUSTER_ID": str(self.id), "MUSTER_WORKERS": str(self.n), "MUSTER_IDENTITY": self.identity}
        self.child = subprocess.Popen(command, env={**os.environ, **env}, start_new_session=True)
        ended, asked = threading.Event(), 0

        def reap():
            self.child.wait()
            ended.set()
            self.zk.wake()
        threading.Thread(target=reap, daemon=True).start()
        try:
            while not ended.is_set():
                watched = self.look()
                if self.stop != asked:
                    asked = self.stop
                    os.killpg(self.child.pid, asked)
                self.zk.wait(watched, None, lambda: ended.is_set() or self.stop != asked)
        except Ended:
            os.killpg(self.child.pid, signal.SIGKILL)
            raise
        code = self.child.returncode
        return ({"exit_code": code} if code >= 0 else {"signal": signal.Signals(-code).name[3:]}), asked

    def look(self):
        """Looks at what a member watches, and returns it."""
        watched = [self.record_at, self.g + "/gate", self.live]
        there = [self.zk.exists(path, watch=True) for path in watched]
        body, _ = self.zk.get(self.record_at)
        record = json.loads(body) if body else None
        if record and not self.g.endswith("/" + record["generation"]):
            raise Ended(FENCED, "the generation has ended")
        if record and record["state"] == "terminating":
            self.stop = self.stop or signal.SIGTERM
        if there[1] and not there[2]:
            try:
                self.transact(create(self.live, encode_worker(self.ip, self.port, self.id), EPHEMERAL))
            except Refused:
                pass  # the job znode is gone, too, or somebody else was faster: the next event brings us back
        return watched

    # Leaving

    def leave(self, completes, **ended):
        """Returns whether this was the last one to complete."""
        claim = {**self.claim, "nonce": uuid.uuid4().hex, "state": "done" if completes else "left"}
        for old in ("exit_code", "signal"):
            claim.pop(old, None)
        claim.update(ended)
        end = [create(self.g + "/end/d-", b"", SEQUENTIAL)] if completes else []
        while True:
            live = self.zk.exists(self.live)
            mine = [delete(self.live, live.version)] if live and live.owner == self.zk.id else []
            try:
                made = self.zk.multi(self.gate, set_data(self.by, json.dumps(claim), self.version), *end, *mine)
                return completes and int(made[2][-10:]) == self.n - 1
            except Refused as e:
                if e.index < 2 + len(end):
                    raise Ended(FENCED, "somebody else is this worker, or the generation has ended")

    def complete(self):
        """Completes. The last one does what on_complete says, and tries as long as a dead session may last."""
        if not self.leave(True, exit_code=0):
            return
        end = time.monotonic() + self.zk.timeout + 5
        while not self.finish() and time.monotonic() < end:
            self.zk.children(self.job, watch=True)
            self.zk.wait([self.job], 1)


def work(w, barrier, command):
    """Is the exit code."""
    w.join()
    try:
        print(f"worker {w.id} of {w.n}", flush=True)
        print("roll", json.dumps(w.roll()), flush=True)
        w.barrier(barrier, 0)
        ended, asked = w.execute(command)
    except Ended as e:
        if e.code != FENCED:
            w.leave(False)
        raise
    completes = ended == {"exit_code": 0} and not asked
    if completes:
        w.complete()
    else:
        w.leave(False, **ended)
    return ended.get("exit_code", 128 - w.child.returncode)


def main():
    path, identity, address, barrier, *command = sys.argv[1:]
    w = Worker(path, identity, address)

    def stop(number, _):
        w.stop = number
        w.zk.wake()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        code = work(w, barrier, command)
    except Ended as e:
        print(e, file=sys.stderr)
        code = e.code
    w.zk.close()
    sys.exit(code)


if __name__ == "__main__":
    try:
        main()
    except OSError as e:
        print("ZooKeeper cannot be reached, or the connection is lost:", e, file=sys.stderr)
        sys.exit(LOST)
