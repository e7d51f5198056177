import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;

/** How a worker joins a job, and how a run of it ends. */
abstract class Joiner extends Client {
    final String path, root, name, identity, ip, run, recordAt, live;
    final int port;
    final Set<String> nonces = new HashSet<>(); // of all claims that this process has sent

    Job job; // as it was read last
    String g, folder, by; // the generation, its znode, and the claim of this worker in it
    Json claim; // as this process has written it last
    int id, version; // version of the claim, the fencing token
    long limit; // when this worker stops to wait for others
    boolean committed; // it leaves or completes
    private String waitsFor = ""; // as it was said last

    Joiner(String path, String identity, String address) throws Ended {
        int slash = path.lastIndexOf('/'), colon = address.lastIndexOf(':');
        if (slash < 1 || colon < 1) {
            throw new Ended(USAGE, "PATH is such as /jobs/ingest, and the address such as 10.0.0.1:9000");
        }
        this.path = path;
        root = path.substring(0, slash);
        name = path.substring(slash + 1);
        this.identity = identity;
        ip = address.substring(0, colon);
        port = Integer.parseInt(address.substring(colon + 1));
        run = System.getenv().getOrDefault("MUSTER_RUN", "");
        recordAt = root + "/.muster/job/" + name;
        live = path + "/" + identity;
        checkName(name);
        boolean printable = List.of(identity, ip, run).stream().allMatch(WorkerInfo::printable);
        if (identity.isEmpty() || identity.contains("/") || identity.matches("\\.\\.?|\\.muster")
                || !printable || port < 0 || port > 65_535 || run.contains(" ") || run.length() > 128) {
            throw new Ended(USAGE, "the identity, the address or the run cannot be written");
        }
    }

    static void checkName(String name) throws Ended {
        if (!name.matches("[A-Za-z0-9][A-Za-z0-9._-]{0,127}")) {
            throw new Ended(USAGE, name + " cannot be a name");
        }
    }

    @Override
    boolean givesUp() {
        return stop && claim == null;
    }

    Op check(String at, int version) {
        return Op.check(at, version);
    }

    Op create(String at, byte[] body, CreateMode mode) {
        return Op.create(at, body, job.acl, mode);
    }

    Op create(String at, byte[] body) {
        return create(at, body, CreateMode.PERSISTENT);
    }

    Op set(String at, byte[] body, int version) {
        return Op.setData(at, body, version);
    }

    Op delete(String at, int version) {
        return Op.delete(at, version);
    }

    static int digits(String at) {
        return Integer.parseInt(at.substring(at.length() - 10));
    }

    String idAt(int k) {
        return String.format("%s/id/n-%010d", folder, k);
    }

    String lastEnd() {
        return String.format("%s/end/d-%010d", folder, job.n - 1);
    }

    /** Waits for an event that was not seen, says for what, and gives up when the join timeout is over. */
    void pause(int seen, int code, String why) throws Exception {
        pause(seen, code, why, limit);
    }

    void pause(int seen, int code, String why, long until) throws Exception {
        long now = System.nanoTime();
        if (stop && !committed) {
            throw new Ended(STOPPED, "asked to end: " + why);
        }
        if (now - limit >= 0) {
            throw new Ended(code, why);
        }
        say(why);
        s.await(seen, Math.min(limit, until));
        s.sync();
    }

    /** Says what this worker waits for, if that is new. */
    void say(String why) {
        if (!why.equals(waitsFor)) {
            waitsFor = why;
            System.out.println("waiting: " + why);
        }
    }

    /** Joins, in as many sessions as it takes. */
    void join() throws Exception {
        String timeout = "30s";
        limit = System.nanoTime() + 100 * SECOND;
        boolean known = false;
        while (true) {
            try {
                s = new Session(timeout, limit);
                while (true) {
                    int seen = s.seen();
                    if (!readJob()) {
                        pause(seen, NO_JOB, "no such job");
                        continue;
                    }
                    if (!known) {
                        limit = System.nanoTime() + duration(job.join);
                        known = true;
                    }
                    if (timeout.equals(job.session)) {
                        break;
                    }
                    timeout = job.session; // a session keeps the timeout that it began with
                    s.end();
                    s = new Session(timeout, limit);
                }
                decide();
                return;
            } catch (Lost e) {
                System.out.println("the session is lost");
            }
        }
    }

    /** Reads the record, and reports whether there is one. */
    boolean readJob() throws Exception {
        Node n = s.get(recordAt);
        if (n != null) {
            job = new Job(n);
        }
        return n != null;
    }

    /** Does what the table of docs/protocol.md says, until this worker has joined. */
    void decide() throws Exception {
        String nonce = nonce();
        for (int refused = 0;;) {
            int seen = s.seen();
            if (!readJob()) {
                pause(seen, NO_JOB, "no such job");
                continue;
            }
            g = job.text("generation");
            folder = root + "/.muster/run/" + g;
            by = folder + "/by/" + identity;
            if (!run.isEmpty() && run.equals(job.last())) {
                throw new Ended(0, "run " + run + " has completed");
            }
            if (job.terminating()) {
                pause(seen, LATE, "the job is terminated");
                continue;
            }
            Node copy = s.get(folder);
            if (copy == null || !job.owns(copy.body())) {
                pause(seen, LATE, "the generation is not there", System.nanoTime() + LOOK_AGAIN);
                continue;
            }
            Node of = s.get(folder + "/id");
            List<String> there = s.children(folder);
            if (of == null && there != null && !there.isEmpty() && !there.equals(List.of("gate"))) {
                pause(seen, LATE, "a part of the job is missing: id");
                continue;
            }
            boolean first = of == null;
            if (!first && !mayJoin(seen, of, nonce)) {
                continue;
            }
            if (claim != null) { // it has joined again
                return;
            }
            try {
                if (refused > 1) { // with what is missing
                    for (String part : List.of("/gate", "/id", "/by", "/end", "/barrier")) {
                        s.exists(first ? folder + "/gate" : folder + part);
                    }
                    s.exists(path);
                    pause(seen, LATE, "a part of the job is missing", System.nanoTime() + LOOK_AGAIN);
                }
                if (multiJoin(nonce, first)) {
                    return;
                }
            } catch (Refused e) {
                if (e.code == Code.NODEEXISTS && e.at == (first ? 7 : 3)) {
                    seen = s.seen();
                    if (s.exists(live) != null) {
                        pause(seen, FENCED, "another process of " + identity + " is live");
                    }
                } else if (e.code == Code.NONODE) {
                    refused++;
                } else if (e.code != Code.NODEEXISTS) {
                    throw new Ended(FAILED, "the join is refused: " + e.getMessage());
                }
            } catch (Unknown e) {
                // the claim tells
            }
        }
    }

    /** Is false after a pause. Otherwise claim is set if this worker has joined again, and else it may join. */
    boolean mayJoin(int seen, Node of, String nonce) throws Exception {
        boolean over = s.exists(lastEnd()) != null, kept = job.onComplete.equals("retain");
        if (!run.isEmpty() && !run.equals(Json.utf8(of.body()))) {
            otherRun(seen, over, LATE, "the job has another run");
            return false;
        }
        Node mine = s.get(by);
        if (mine != null) {
            return joinAgain(mine, nonce, over);
        }
        List<String> ids = s.children(folder + "/id"), ends = s.children(folder + "/end");
        int joined = ids == null ? 0 : Math.min(job.n, ids.size());
        if (joined == job.n && over && !kept) {
            otherRun(seen, true, FULL, "the job is full");
            return false;
        }
        if (joined == job.n) {
            throw new Ended(FULL, "the job is full");
        }
        List<String> lives = s.read(() -> s.zk.getChildren(path, true));
        int done = ends == null ? 0 : Math.min(job.n, ends.size());
        if (lives == null) {
            s.exists(path);
            pause(seen, LATE, "a part of the job is missing: " + path, System.nanoTime() + LOOK_AGAIN);
            return false;
        }
        if (lives.isEmpty() && joined > done) {
            pause(seen, LATE, "the job is stale");
            return false;
        }
        return true;
    }

    /** Waits for another record. If the run is over for a while, makes it, since the last worker has not. */
    void otherRun(int seen, boolean over, int code, String why) throws Exception {
        if (!over || job.onComplete.equals("retain")) {
            pause(seen, code, why);
            return;
        }
        long spread = Math.min(5 * SECOND, job.n * SECOND / 2000);
        pause(seen, code, why, System.nanoTime() + SECOND + ThreadLocalRandom.current().nextLong(spread + 1));
        seen = s.seen();
        if (!finish()) {
            s.read(() -> s.zk.getChildren(path, true));
            pause(seen, code, why, System.nanoTime() + LOOK_AGAIN);
        }
    }

    /** Is false if the multi must be tried again. */
    boolean multiJoin(String nonce, boolean first) throws Exception {
        Json mine = new Json("{\"nonce\":\"" + nonce + "\",\"lives\":1,\"state\":\"in\"}");
        List<Op> ops = new ArrayList<>(List.of(check(folder + "/gate", -1)));
        if (first) {
            ops.add(create(folder + "/id", run.getBytes(StandardCharsets.UTF_8)));
            for (String part : List.of("/by", "/end", "/barrier")) {
                ops.add(create(folder + part, NOTHING));
            }
        }
        ops.add(create(by, mine.bytes()));
        ops.add(create(folder + "/id/n-", info(null), CreateMode.PERSISTENT_SEQUENTIAL));
        ops.add(create(live, info(null), CreateMode.EPHEMERAL));
        nonces.add(nonce);
        List<OpResult> done = s.multi(ops);
        joined(mine, 0, digits(((OpResult.CreateResult) done.get(ops.size() - 2)).getPath()));
        return true;
    }

    void joined(Json mine, int at, int k) throws Exception {
        if (k >= job.n) {
            withdraw(k);
        }
        claim = mine;
        version = at;
        id = k;
    }

    void withdraw(int k) throws Exception {
        while (true) {
            List<Op> ops = new ArrayList<>(List.of(check(folder + "/gate", -1), delete(idAt(k), -1), delete(by, -1)));
            if (s.exists(live) != null) {
                ops.add(delete(live, -1));
            }
            try {
                s.multi(ops);
                break;
            } catch (Refused e) {
                if (e.at < ops.size() - 1 || e.code != Code.NONODE) {
                    break; // another process of this identity did it, or the generation has ended
                }
            } catch (Unknown e) {
                if (s.exists(by) == null) {
                    break;
                }
            }
        }
        throw new Ended(FULL, "the job is full");
    }

    /** Is false if everything must be looked at again. */
    boolean joinAgain(Node mine, String nonce, boolean over) throws Exception {
        s.sync();
        mine = s.get(by);
        if (mine == null) {
            return false;
        }
        Json said = claimOf(mine.body());
        if (said.text("state").equals("done")) {
            if (over) {
                finishAsLast();
            }
            throw new Ended((int) said.number("exit_code", 0, 0, 255), identity + " has completed");
        }
        int k = findId(mine.stat().getCzxid());
        if (k < 0) {
            pause(s.seen(), LATE, "the id of " + identity + " is missing", System.nanoTime() + LOOK_AGAIN);
            return false;
        }
        if (k >= job.n) {
            withdraw(k);
        }
        if (said.text("nonce").equals(nonce)) {
            joined(said, mine.stat().getVersion(), k);
            return true;
        }
        Json next = said.with("nonce", Json.quote(nonce)).with("state", "\"in\"")
                .with("lives", "" + (said.number("lives", 0, 0, Integer.MAX_VALUE) + 1));
        nonces.add(nonce);
        int seen = s.seen();
        try {
            s.multi(List.of(check(folder + "/gate", -1), set(by, next.bytes(), mine.stat().getVersion()),
                    set(idAt(k), info(k), -1), create(live, info(k), CreateMode.EPHEMERAL)));
            joined(next, mine.stat().getVersion() + 1, k);
            return true;
        } catch (Refused e) {
            if (e.is(3, Code.NODEEXISTS)) {
                if (s.exists(live) != null) {
                    pause(seen, FENCED, "another process of " + identity + " is live");
                }
            } else if (e.code == Code.NONODE) {
                s.exists(path);
                pause(seen, LATE, "a part of the job is missing", System.nanoTime() + LOOK_AGAIN);
            } else if (e.code != Code.BADVERSION) {
                throw new Ended(FAILED, "the join is refused: " + e.getMessage());
            }
        } catch (Unknown e) {
            // the claim tells
        }
        return false;
    }

    /** The id that one transaction has made with the claim; -1 if it is nowhere. */
    int findId(long czxid) throws Exception {
        List<String> all = s.children(folder + "/id");
        int low = 0, high = Math.min(job.n, all == null ? 0 : all.size()) - 1;
        while (low <= high) {
            int middle = (low + high) / 2;
            Stat at = s.exists(idAt(middle));
            if (at == null) {
                break;
            }
            if (at.getCzxid() == czxid) {
                return middle;
            }
            if (at.getCzxid() < czxid) {
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
        for (String child : all == null ? List.<String>of() : all) {
            if (child.matches("n-\\d{10}")) {
                Stat at = s.exists(folder + "/id/" + child);
                if (at != null && at.getCzxid() == czxid) {
                    return digits(child);
                }
            }
        }
        return -1;
    }

    // The end of a run.

    /** Does what on_complete says, for as long as a session that is dead may be in the way. */
    void finishAsLast() throws Exception {
        long until = System.nanoTime() + s.zk.getSessionTimeout() * 1_000_000L + 5 * SECOND;
        while (true) {
            s.sync();
            int seen = s.seen();
            s.read(() -> s.zk.getChildren(path, true));
            if (finish() || System.nanoTime() - until >= 0) {
                return;
            }
            s.await(seen, System.nanoTime() + SECOND);
        }
    }

    /** Is true if there is nothing left to do for this generation. */
    boolean finish() throws Exception {
        String ended = g, at = folder;
        if (!readJob() || !ended.equals(job.text("generation")) || job.terminating()
                || job.onComplete.equals("retain") || s.exists(lastEnd()) == null) {
            return true;
        }
        Node copy = s.get(at), of = s.get(at + "/id");
        Stat znode = s.exists(path);
        if (copy == null || !job.owns(copy.body()) || of == null || Json.utf8(of.body()) == null || znode == null) {
            return true; // the job is damaged: left to apply
        }
        List<Op> ops = new ArrayList<>(List.of(delete(path, znode.getVersion())));
        if (job.onComplete.equals("remove")) {
            ops.addAll(List.of(delete(recordAt, job.version), delete(at + "/gate", -1)));
        } else {
            String next = nonce(), there = root + "/.muster/run/" + next;
            Json last = new Json("{}").with("id", Json.quote(Json.utf8(of.body())))
                    .with("generation", Json.quote(ended))
                    .with("completed", Json.quote(Instant.now().truncatedTo(ChronoUnit.SECONDS).toString()));
            byte[] body = job.record.with("generation", Json.quote(next)).with("op", Json.quote(nonce()))
                    .with("last", last.toString()).bytes();
            ops.addAll(List.of(create(path, NOTHING), set(recordAt, body, job.version), delete(at + "/gate", -1),
                    create(there, body), create(there + "/gate", NOTHING)));
        }
        try {
            s.multi(ops);
        } catch (Refused e) {
            return false;
        } catch (Unknown e) {
            if (readJob() && ended.equals(job.text("generation"))) {
                return false;
            }
        }
        List<Op> below = new ArrayList<>();
        collect(at, below);
        for (int i = 0; i < below.size(); i += 100) {
            try {
                s.multi(below.subList(i, Math.min(below.size(), i + 100)));
            } catch (Refused | Unknown e) {
                return true; // another one deletes it too
            }
        }
        return true;
    }

    void collect(String at, List<Op> below) throws Exception {
        List<String> names = s.children(at);
        for (String child : names == null ? List.<String>of() : names) {
            collect(at + "/" + child, below);
        }
        below.add(delete(at, -1));
    }

    // Bodies of znodes.

    byte[] info(Integer k) {
        return WorkerInfo.write(ip, port, k);
    }

    static String nonce() {
        return UUID.randomUUID().toString().replace("-", "");
    }

    static Json claimOf(byte[] body) throws Ended {
        Json said = Json.parse(body, "the claim");
        if (!said.text("state").matches("in|left|done") || !said.text("nonce").matches("[A-Za-z0-9_-]{1,64}")) {
            throw new Ended(UNREADABLE, "the claim cannot be read");
        }
        return said;
    }

    /** A record, checked. */
    class Job {
        final Json record;
        final int version, n;
        final boolean text;
        final String session, join, barrier, onComplete;
        final List<ACL> acl = new ArrayList<>();

        Job(Node node) throws Ended {
            version = node.stat().getVersion();
            record = Json.parse(node.body(), "the record");
            long format = record.number("format", -1, 0, Integer.MAX_VALUE);
            if (format != 1) {
                throw new Ended(UNREADABLE, "the record has format " + format + ", and this program knows 1");
            }
            Json declared = record.object("job"), timeouts = declared.object("timeouts");
            n = (int) declared.number("workers", -1, 1, 20_000);
            String roll = declared.text("roll_format");
            text = roll.equals("text");
            session = timeouts.textOr("session", "30s");
            join = timeouts.textOr("join", "1m40s");
            barrier = timeouts.textOr("barrier", "1m40s");
            onComplete = declared.object("lifecycle").textOr("on_complete", "reset");
            for (String d : List.of(session, join, barrier)) {
                duration(d);
            }
            if (!declared.text("name").equals(name) || !declared.text("root").equals(root)
                    || declared.has("gang") || declared.text("ids").equals("index")
                    || !List.of("", "text", "protobuf").contains(roll) || record.text("stack").isEmpty()
                    || !List.of("reset", "remove", "retain").contains(onComplete)
                    || !List.of("open", "terminating").contains(record.text("state"))
                    || !record.text("generation").matches("[A-Za-z0-9_-]{1,64}")) {
                throw new Ended(UNREADABLE, "the record is not one of this job");
            }
            for (String entry : record.list("acl")) {
                int first = entry.indexOf(':'), last = entry.lastIndexOf(':'), perms = 0;
                for (char c : entry.substring(last + 1).toCharArray()) {
                    int bit = "rwcda".indexOf(c);
                    perms |= bit < 0 ? 0 : 1 << bit;
                }
                if (first < 0 || first == last) {
                    throw new Ended(UNREADABLE, "the record has an ACL that cannot be read");
                }
                acl.add(new ACL(perms, new Id(entry.substring(0, first), entry.substring(first + 1, last))));
            }
            if (acl.isEmpty()) {
                acl.add(new ACL(31, new Id("world", "anyone")));
            }
        }

        String text(String key) {
            return record.text(key);
        }

        boolean terminating() {
            return text("state").equals("terminating");
        }

        /** The name of the last run. */
        String last() throws Ended {
            return record.object("last").text("id");
        }

        /** Whether a generation with this copy is that of the record. */
        boolean owns(byte[] copy) {
            try {
                Json other = Json.parse(copy, "the copy");
                Json declared = other.object("job");
                return other.text("generation").equals(text("generation")) && declared.text("name").equals(name)
                        && declared.text("root").equals(root);
            } catch (Ended e) {
                return false;
            }
        }
    }
}
