"""How a process joins a job: the section "Joining" of docs/protocol/jobs.md."""
import json, os, signal, sys, time, uuid

import zookeeper
from bodies import encode_worker, raw_fields
from executor import seconds
from zookeeper import EPHEMERAL, NO_NODE, NODE_EXISTS, SEQUENTIAL, Refused, check, create, delete, set_data

LOST, LATE, ABORTED, FENCED, FULL, NO_JOB = 8, 70, 71, 72, 73, 74  # exit codes of muster


class Ended(Exception):
    """The process is to end with this code."""

    def __init__(self, code, why):
        super().__init__(why)
        self.code = code


class Joiner:
    """A process that becomes a worker of the job at path."""

    def __init__(self, path, identity, address):
        self.job, self.identity = path, identity
        self.ip, port = address.rsplit(":", 1)
        self.port, self.run = int(port), os.environ.get("MUSTER_RUN", "")
        self.root, name = path.rsplit("/", 1)
        self.record_at, self.live = f"{self.root}/.muster/job/{name}", f"{path}/{identity}"
        self.nonce, self.child, self.stop, self.over = uuid.uuid4().hex, None, 0, ""
        self.first_session()

    def first_session(self):
        """Opens a session with the timeout that the record says, if there is one already."""
        server, timeout = os.environ["MUSTER_SERVERS"].split(",")[0], 30.0
        while True:
            self.zk = zookeeper.ZooKeeper(server, int(timeout * 1000))
            body, _ = self.zk.get(self.record_at)
            recorded = seconds(json.loads(body)["job"]["timeouts"]["session"]) if body else timeout
            if recorded == timeout:
                break
            self.zk.close()
            timeout = recorded
        self.zk.keep(self.lost)

    def lost(self):
        if self.child and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        print("the session is lost", file=sys.stderr)
        os._exit(LOST)

    def join(self):
        begun, limit, known = time.monotonic(), 100.0, False
        while True:
            wait = self.attempt()
            if wait is None:
                return
            code, why, watched = wait
            if self.record and not known:
                begun, limit, known = time.monotonic(), seconds(self.record["job"]["timeouts"]["join"]), True
            if watched:
                print("waiting:", why, file=sys.stderr, flush=True)
            if watched and not self.wait(watched, begun + limit - time.monotonic()):
                raise Ended(code, why)
            if code == NO_JOB:  # now the session timeout is known
                self.zk.close()
                self.first_session()
            self.zk.sync(self.record_at)

    def wait(self, paths, limit):
        """Is false when the time is over."""
        came = self.zk.wait(paths, max(0, limit), lambda: self.stop)
        if self.stop:
            raise Ended(128 + self.stop, "stopped")
        return came

    def attempt(self):
        """Joins and returns None. Or returns code, reason and watches of a wait. The rows are those of the page."""
        zk, record_at = self.zk, [self.record_at]
        stat, self.record = zk.exists(self.record_at, watch=True), None
        body = zk.get(self.record_at)[0] if stat else None
        if not body:
            return NO_JOB, "no such job", record_at  # row 1
        self.record = json.loads(body)
        if self.record["format"] != 1:
            raise Ended(3, f"the record has format {self.record['format']}, and this program knows 1")  # row 2
        if self.record.get("acl", []) not in ([], ["world:anyone:cdrwa"]):
            raise Ended(3, "this job is not for this program")  # row 2
        if self.run and self.record.get("last", {}).get("id") == self.run:
            raise Ended(0, "this run has completed")  # row 3
        if self.record["state"] != "open":
            return LATE, "the workers were asked to stop", record_at  # row 4
        self.n, self.g = self.record["job"]["workers"], f"{self.root}/.muster/run/{self.record['generation']}"
        self.by, self.ids, self.gate = f"{self.g}/by/{self.identity}", self.g + "/id", check(self.g + "/gate", -1)
        run, ids = zk.get(self.ids)
        if ids is None:
            generation = zk.exists(self.g)
            if generation and generation.children > 1:
                zk.exists(self.ids, watch=True)
                return LATE, "a part of the job is missing", [self.ids, *record_at]  # row 6
            return self.join_first_time(folders=True)  # row 5
        if self.run and run.decode() != self.run:
            return self.next_generation(LATE, "this generation is of another run")  # row 7
        if zk.exists(self.by):
            return self.join_again()  # row 8
        if ids.children >= self.n:
            if self.on_complete() != "retain" and zk.exists(f"{self.g}/end/d-{self.n - 1:010d}"):
                return self.next_generation(FULL, "all workers of this generation have completed")  # row 9
            raise Ended(FULL, "the job is full")  # row 10
        live = zk.children(self.job, watch=True)
        done = zk.exists(self.g + "/end")
        if live == [] and done and ids.children > done.children:
            return LATE, "nobody is live, and somebody has left without completing", [self.job, *record_at]  # row 11
        return self.join_first_time(folders=False)  # row 12

    def join_first_time(self, folders):
        claim = {"nonce": self.nonce, "lives": 1, "state": "in"}
        ops = [self.gate]
        if folders:
            ops += [create(self.ids, self.run), *(create(f"{self.g}/{f}") for f in ("by", "end", "barrier"))]
        mine = len(ops)
        info = encode_worker(self.ip, self.port)
        ops += [create(self.by, json.dumps(claim)), create(self.ids + "/n-", info, SEQUENTIAL),
                create(self.live, info, EPHEMERAL)]
        try:
            made = self.zk.multi(*ops)
        except Refused as e:
            if e.code == NODE_EXISTS and e.index == mine + 2:
                return self.wait_for_live()
            return self.moved(e)
        self.claim, self.version, self.id = claim, 0, int(made[mine + 1][-10:])
        if self.id >= self.n:
            self.withdraw()
        try:
            info = encode_worker(self.ip, self.port, self.id)
            self.zk.multi(self.gate, check(self.by, 0), set_data(self.live, info, 0))
        except Refused:
            pass  # nothing depends on it

    def moved(self, refused):
        """What to wait for after a refusal: nothing, or that a missing part is back."""
        parts = [self.g + "/gate", self.job]
        if refused.code == NO_NODE and None in [self.zk.exists(part, watch=True) for part in parts]:
            return LATE, "a part of the job is missing", [self.record_at, *parts]
        return 0, "", None

    def wait_for_live(self):
        if self.zk.exists(self.live, watch=True) is None:
            return 0, "", None
        return FENCED, "an older process is live as " + self.identity, [self.live]

    def join_again(self):
        self.zk.sync(self.by)
        body, stat = self.zk.get(self.by)
        if stat is None:
            return 0, "", None
        claim = json.loads(body)
        if claim["state"] == "done":
            self.finish()
            raise Ended(claim["exit_code"], "this worker has completed")
        self.id, self.version = self.find_id(stat.czxid), stat.version
        if self.id >= self.n:
            self.withdraw()
        self.claim = {**claim, "nonce": self.nonce, "lives": claim["lives"] + 1, "state": "in"}
        info = encode_worker(self.ip, self.port, self.id)
        try:
            self.zk.multi(self.gate, set_data(self.by, json.dumps(self.claim), stat.version),
                          set_data(f"{self.ids}/n-{self.id:010d}", info, -1), create(self.live, info, EPHEMERAL))
        except Refused as e:
            if e.code == NODE_EXISTS:
                return self.wait_for_live()
            return self.moved(e)
        self.version += 1

    def find_id(self, czxid):
        low, high = 0, min(self.n, self.zk.exists(self.ids).children)
        while low < high:
            middle = (low + high) // 2
            found = self.zk.exists(f"{self.ids}/n-{middle:010d}").czxid
            if found == czxid:
                return middle
            low, high = (middle + 1, high) if found < czxid else (low, middle)
        for name in self.zk.children(self.ids):
            if self.zk.exists(f"{self.ids}/{name}").czxid == czxid:
                return int(name[-10:])
        raise Ended(1, "no id was created together with the claim")

    def withdraw(self):
        live = self.zk.exists(self.live)
        ops = [delete(self.live, live.version)] if live and live.owner == self.zk.id else []
        try:
            self.zk.multi(self.gate, delete(f"{self.ids}/n-{self.id:010d}", 0), delete(self.by, self.version), *ops)
        except Refused:
            pass  # who joins next under this identity does it
        raise Ended(FULL, "the job is full")

    def next_generation(self, code, why):
        """Waits for another record. If this run is over, and nobody does what on_complete says, it does that."""
        last, retain = f"{self.g}/end/d-{self.n - 1:010d}", self.on_complete() == "retain"
        if retain or self.zk.exists(last, watch=True) is None:
            return code, why, [last, self.record_at]
        if self.over != self.g:
            self.over = self.g
            self.wait([self.record_at], 1)
            return 0, "", None
        if self.finish():
            return code, why, [self.record_at]
        self.zk.children(self.job, watch=True)
        return code, why, [self.record_at, self.job]

    def on_complete(self):
        return self.record["job"].get("lifecycle", {}).get("on_complete", "reset")

    def finish(self):
        """Does what on_complete says, if all have completed. Is false if it was refused."""
        body, stat = self.zk.get(self.record_at)
        job, end = self.zk.exists(self.job), self.zk.exists(self.g + "/end")
        record = json.loads(body) if body else {}
        if not self.g.endswith("/" + record.get("generation", "")) or record["state"] != "open" or not job or \
                not end or end.children < self.n:
            return True  # somebody else did it, or it is up to apply
        does = self.on_complete()
        gone = [delete(self.job, job.version), delete(self.g + "/gate", -1)]
        if does == "remove":
            ops = [*gone, delete(self.record_at, stat.version)]
        elif does == "reset":
            h = uuid.uuid4().hex
            text = raw_fields(body.decode())
            run, there = self.zk.get(self.ids)
            if there is None:
                return True
            last = {"id": run.decode(), "generation": record["generation"],
                    "completed": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
            text.update(generation=json.dumps(h), op=json.dumps(uuid.uuid4().hex), last=json.dumps(last))
            new = "{" + ",".join(json.dumps(k) + ":" + v for k, v in text.items()) + "}"
            run_of = f"{self.root}/.muster/run/{h}"
            ops = [*gone, create(self.job), set_data(self.record_at, new, stat.version),
                   create(run_of, new), create(run_of + "/gate")]
        else:
            return True
        try:
            self.zk.multi(*ops)
        except Refused:
            return False  # somebody is still live, or somebody else did it
        self.remove(self.g)
        return True

    def remove(self, path):
        """Deletes a generation that has ended; whoever finds the rest goes on."""
        for name in self.zk.children(path) or []:
            self.remove(f"{path}/{name}")
        try:
            self.zk.multi(delete(path, -1))
        except Refused:
            pass
