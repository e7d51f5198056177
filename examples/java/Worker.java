import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.data.Stat;

/**
 * A worker of a muster job that knows only docs/protocol.md and ZooKeeper's own client.
 *
 * Worker PATH IDENTITY IP:PORT BARRIER COMMAND... joins the job at PATH, such as /jobs/ingest, waits for all workers,
 * prints the roll, passes round 0 of BARRIER, runs COMMAND, and completes if that ends well. MUSTER_SERVERS lists
 * ZooKeeper servers, MUSTER_RUN is the name of the run. The exit codes are muster's. When no server has answered for
 * the session timeout it kills COMMAND, and runs it again once it is a member in a new session.
 */
public class Worker extends Joiner {
    static final int LARGEST_ROLL = 900_000;
    static final Map<Integer, String> SIGNALS = Map.of(1, "HUP", 2, "INT", 3, "QUIT", 6, "ABRT", 9, "KILL", 11, "SEGV",
            13, "PIPE", 14, "ALRM", 15, "TERM");

    private final String barrier;
    private final String[] command;
    private boolean sentEnd; // a multi that leaves or completes may have happened
    private volatile Process child;
    private volatile boolean killed; // the command, by this worker

    Worker(String path, String identity, String address, String barrier, String[] command) throws Ended {
        super(path, identity, address);
        checkName(barrier);
        this.barrier = barrier;
        this.command = command;
    }

    @Override
    void sessionEnds() {
        killCommand();
    }

    /** A multi of a member. After Unknown the caller looks again. */
    List<OpResult> transact(Op... ops) throws Exception {
        while (true) {
            List<Op> all = new ArrayList<>(List.of(check(folder + "/gate", -1), check(by, version)));
            all.addAll(Arrays.asList(ops));
            try {
                return s.multi(all);
            } catch (Refused e) {
                if (e.at > 1) {
                    throw new Refused(e.at - 2, e.code);
                }
                refusedMember(e);
            }
        }
    }

    /** Gate or claim are not as they must be: ends a worker that is fenced, and waits if a part is missing. */
    void refusedMember(Refused e) throws Exception {
        if (e.code != Code.NONODE) {
            throw new Ended(FENCED, "another process is " + identity);
        }
        awaitPart(e.at == 0 ? folder + "/gate" : by);
    }

    /** Waits for a part of the job that is missing, unless the generation has ended. */
    void awaitPart(String part) throws Exception {
        s.sync();
        int seen = s.seen();
        boolean there = s.exists(part) != null, record = true;
        try {
            record = readJob();
            if (record && !g.equals(job.text("generation"))) {
                throw new Ended(FENCED, "the generation has ended");
            }
        } catch (Ended e) {
            if (e.code != UNREADABLE) { // that says nothing of the generation
                throw e;
            }
        }
        if (!record && s.exists(folder + "/gate") == null && s.exists(path) == null) {
            throw new Ended(FENCED, "the generation has ended");
        }
        if (there) {
            return;
        }
        say(part + " is missing");
        if ((stop || committed) && System.nanoTime() - limit >= 0) {
            throw new Ended(LATE, part + " is missing");
        }
        s.await(seen, System.nanoTime() + LOOK_AGAIN);
    }

    /** Looks at what a member watches, and mends its live znode. */
    void look() throws Exception {
        Stat gate = s.exists(folder + "/gate"), mine = s.exists(live);
        if (mine != null && mine.getEphemeralOwner() != s.zk.getSessionId()) {
            own();
        }
        try {
            if (readJob() && !g.equals(job.text("generation"))) {
                throw new Ended(FENCED, "the generation has ended");
            }
            stop |= job.terminating();
        } catch (Ended e) {
            if (e.code != UNREADABLE) {
                throw e;
            }
        }
        if (gate == null) {
            awaitPart(folder + "/gate");
        } else if (mine == null && s.exists(path) != null) {
            try {
                transact(create(live, info(id), CreateMode.EPHEMERAL));
            } catch (Refused | Unknown e) {
                s.wake(); // look again
            }
        } else if (mine == null) {
            awaitPart(path);
        }
    }

    /** Writes the id into the live znode, which only lists use. */
    void tellId() throws Exception {
        long least = Math.min(5 * SECOND, job.n * SECOND / 2000);
        s.await(s.seen(), System.nanoTime() + least + ThreadLocalRandom.current().nextLong(least + 1));
        try {
            transact(set(live, info(id), -1));
        } catch (Refused | Unknown e) {
            // nothing depends on it
        }
    }

    /** Makes this member one again in a new session; fenced if another process took its identity. */
    void rejoin() throws Exception {
        System.out.println("the session is lost");
        limit = System.nanoTime() + duration(job.join);
        while (true) {
            try {
                s = new Session(job.session, limit);
                while (!rejoined()) {
                    s.sync();
                }
                System.out.println("a member again, as worker " + id);
                return;
            } catch (Lost e) {
                System.out.println("the session is lost");
            }
        }
    }

    boolean rejoined() throws Exception {
        int seen = s.seen();
        if (!own()) {
            awaitPart(by);
            return false;
        }
        Stat there = s.exists(live);
        if (there != null && there.getEphemeralOwner() == s.zk.getSessionId()) {
            return true;
        }
        if (there != null && !sessions.contains(there.getEphemeralOwner())) {
            pause(seen, FENCED, "another process of " + identity + " is live");
            return false;
        }
        Json next = claim.with("nonce", Json.quote(nonce()));
        nonces.add(next.text("nonce"));
        List<Op> ops = new ArrayList<>(List.of(check(folder + "/gate", -1), set(by, next.bytes(), version)));
        if (there != null) {
            ops.add(delete(live, -1));
        }
        ops.add(create(live, info(id), CreateMode.EPHEMERAL));
        try {
            s.multi(ops);
            claim = next;
            version++;
            return true;
        } catch (Refused e) {
            if (e.is(0, Code.NONODE)) {
                awaitPart(folder + "/gate");
            } else if (e.is(ops.size() - 1, Code.NONODE)) {
                awaitPart(path);
            }
        } catch (Unknown e) {
            // the claim tells
        }
        return false;
    }

    /** Finds the version of the claim again, which a lost multi of this process may have raised. False: no claim. */
    boolean own() throws Exception {
        Node now = s.get(by);
        if (now == null) {
            return false;
        }
        if (now.stat().getVersion() != version) {
            Json said = claimOf(now.body());
            if (!nonces.contains(said.text("nonce"))) {
                throw new Ended(FENCED, "another process is " + identity);
            }
            claim = said;
            version = now.stat().getVersion();
        }
        return true;
    }

    // The roll.

    /** Waits for all, and returns their addresses by their ids. */
    Map<Integer, String> roll() throws Exception {
        while (true) {
            int seen = s.seen();
            look();
            if (s.exists(idAt(job.n - 1)) != null) {
                break;
            }
            pause(seen, LATE, "not all workers have joined");
        }
        boolean writes = id == job.n - 1 || claim.number("lives", 1, 0, Integer.MAX_VALUE) > 1;
        for (long until = System.nanoTime() + 10 * SECOND; System.nanoTime() - until < 0;) {
            int seen = s.seen();
            look();
            Node n = s.get(path);
            if (n != null && n.stat().getVersion() > 0) {
                Map<Integer, String> rows = WorkerInfo.readRoll(n.body(), job.n);
                return rows != null ? rows : WorkerInfo.readRoll(readIds(false), job.n);
            }
            if (g.equals(job.record.text("no_roll"))) {
                break;
            }
            if (writes && n != null) {
                writeRoll();
            } else {
                s.await(seen, until);
            }
        }
        return WorkerInfo.readRoll(readIds(false), job.n);
    }

    /** Tries to write it once; the caller looks whether it is there now. */
    void writeRoll() throws Exception {
        byte[] body = readIds(job.text);
        try {
            if (body.length <= LARGEST_ROLL) {
                transact(set(path, body, 0));
            } else {
                byte[] next = job.record.with("no_roll", Json.quote(g)).bytes();
                transact(set(recordAt, next, job.version), set(folder, next, -1));
            }
        } catch (Refused | Unknown e) {
            // it is written, or what is missing comes back
        }
    }

    /** The roll as the ids say it. */
    byte[] readIds(boolean text) throws Exception {
        StringBuilder lines = new StringBuilder();
        List<byte[]> rows = new ArrayList<>();
        for (int k = 0; k < job.n; k++) {
            Node n = s.get(idAt(k));
            WorkerInfo info = WorkerInfo.read(n == null ? NOTHING : n.body());
            if (text) {
                lines.append(info.line(k));
                continue;
            }
            byte[] row = info.withId(k);
            rows.add(ByteBuffer.allocate(4).putInt(row.length).array());
            rows.add(row);
        }
        return text ? lines.toString().getBytes(StandardCharsets.UTF_8) : WorkerInfo.join(rows);
    }

    // The barrier.

    /** Passes round 0, which is durable. */
    void passBarrier() throws Exception {
        String floor = folder + "/barrier/" + barrier, d = floor + "/0";
        String waited = job.barrier;
        long until = System.nanoTime() + duration(waited);
        while (true) {
            int seen = s.seen();
            look();
            Node st = s.get(d + "/st");
            if (st == null) {
                if (!makeRound(floor, d)) {
                    return;
                }
                continue;
            }
            Json state = Json.parse(st.body(), "the state of a barrier");
            int n = (int) state.number("n", -1, 1, 20_000);
            String t = String.format("%s/c/c-%010d", d, n - 1);
            Stat decided = s.exists(t);
            if (state.has("aborted")) {
                acknowledge(d);
                throw new Ended(ABORTED, barrier + " was aborted: " + state.text("aborted") + "; missing: "
                        + state.raw("missing"));
            }
            if (!state.text("mode").equals("durable")) {
                throw new Ended(FAILED, barrier + " is " + state.text("mode") + ", not durable");
            }
            if (decided == null && s.exists(d + "/a/" + id) == null) {
                try {
                    transact(check(d + "/st", 0), create(d + "/a/" + id, NOTHING),
                            create(d + "/c/c-", NOTHING, CreateMode.PERSISTENT_SEQUENTIAL));
                } catch (Refused | Unknown e) {
                    // look again
                }
                continue;
            }
            if (decided != null && decided.getDataLength() == 0) {
                return;
            }
            if (stop) {
                throw new Ended(STOPPED, "asked to end at " + barrier);
            }
            if (!s.await(seen, until) && System.nanoTime() - until >= 0) {
                abort(d, state, t, "worker " + id + " waited " + waited);
            }
        }
    }

    /** Is false if the round was released, and is gone. */
    boolean makeRound(String floor, String d) throws Exception {
        Node n = s.get(floor);
        String raised = n == null ? "0" : new String(n.body(), StandardCharsets.UTF_8);
        if (!raised.matches("\\d{1,10}")) {
            throw new Ended(UNREADABLE, "the floor of " + barrier + " cannot be read");
        }
        if (Long.parseLong(raised) > 0) {
            return s.exists(d + "/st") != null;
        }
        byte[] zero = {'0'}, state = ("{\"n\":" + job.n + ",\"mode\":\"durable\"}").getBytes(StandardCharsets.UTF_8);
        try {
            transact(n == null ? create(floor, zero) : check(floor, n.stat().getVersion()), create(d, NOTHING),
                    create(d + "/st", state), create(d + "/a", NOTHING), create(d + "/c", NOTHING));
        } catch (Refused e) {
            if (e.is(0, Code.NONODE)) {
                awaitPart(folder + "/barrier");
            }
        } catch (Unknown e) {
            // its st tells
        }
        return true;
    }

    void abort(String d, Json state, String t, String why) throws Exception {
        List<String> there = s.children(d + "/a"), missing = new ArrayList<>();
        if (there == null) {
            return;
        }
        for (int k = 0; k < state.number("n", -1, 1, 20_000); k++) {
            if (!there.contains("" + k)) {
                missing.add("" + k);
            }
        }
        String counted = String.format("%s/c/c-%010d", d, there.size());
        List<Op> ops = new ArrayList<>(List.of(set(d + "/st",
                state.with("aborted", Json.quote(why)).with("missing", missing.toString()).bytes(), 0)));
        if (!counted.equals(t)) {
            ops.add(create(counted, NOTHING));
        }
        ops.add(create(t, "aborted".getBytes(StandardCharsets.UTF_8)));
        try {
            transact(ops.toArray(new Op[0]));
        } catch (Refused | Unknown e) {
            // released, aborted by another one, or one more has arrived: look again
        }
    }

    void acknowledge(String d) throws Exception {
        try {
            transact(check(d + "/st", 1), create(d + "/a/" + id, NOTHING));
        } catch (Refused | Unknown e) {
            // it has arrived, or it does not matter
        }
    }

    // The command.

    /** Runs the command, and returns its exit code, or 128 and a signal. It is killed if this worker is fenced. */
    int execute() throws Exception {
        ProcessBuilder b = new ProcessBuilder(command).inheritIO();
        b.environment().put("MUSTER_ID", "" + id);
        b.environment().put("MUSTER_WORKERS", "" + job.n);
        b.environment().put("MUSTER_IDENTITY", identity);
        synchronized (s) { // either it starts in a session, or not at all
            if (s.over || s.left() <= 0) {
                throw new Lost();
            }
            killed = false;
            child = b.start();
        }
        Session of = s;
        child.onExit().thenRun(of::wake);
        boolean asked = false;
        try {
            while (child.isAlive()) {
                int seen = s.seen();
                look();
                if (stop && !asked) {
                    asked = true;
                    child.descendants().forEach(ProcessHandle::destroy);
                    child.destroy();
                }
                if (child.isAlive()) {
                    s.await(seen, System.nanoTime() + LOOK_AGAIN);
                }
            }
            if (killed) {
                throw new Lost();
            }
        } catch (Exception e) {
            killCommand();
            throw e;
        }
        return child.exitValue();
    }

    void killCommand() {
        Process p = child;
        if (p != null && p.isAlive()) {
            killed = true;
            p.descendants().forEach(ProcessHandle::destroyForcibly);
            p.destroyForcibly();
        }
    }

    // Leaving.

    /** Completes, or leaves with a code, in as many sessions as it takes. -1: no command has ended. */
    void leave(boolean completes, int code) throws Exception {
        Json end = claim.without("exit_code").without("signal").with("state", completes ? "\"done\"" : "\"left\"");
        String signal = SIGNALS.get(code - 128);
        if (signal != null) {
            end = end.with("signal", Json.quote(signal));
        } else if (code >= 0) {
            end = end.with("exit_code", "" + code);
        }
        end = end.with("nonce", Json.quote(nonce()));
        limit = System.nanoTime() + s.zk.getSessionTimeout() * 1_000_000L + duration(job.join);
        committed = true;
        while (true) {
            try {
                if (s.over) {
                    s = new Session(job.session, limit);
                }
                int number;
                try {
                    number = left(end, completes);
                } catch (Ended e) {
                    if (completes && sentEnd && e.code == FENCED && s.exists(by) == null) {
                        return; // it has completed, and so has the generation
                    }
                    throw e;
                }
                if (completes && number == job.n - 1) {
                    finishAsLast();
                }
                return;
            } catch (Lost e) {
                System.out.println("the session is lost");
            }
        }
    }

    /** Is the number of the d- that this made, or that of the last one if it is not known; -1 if none was made. */
    int left(Json end, boolean completes) throws Exception {
        while (true) {
            Node now = s.get(by);
            if (now != null && claimOf(now.body()).text("nonce").equals(end.text("nonce"))) {
                return job.n - 1;
            }
            if (now == null) { // completed, and so has the generation, or it is missing
                awaitPart(by);
                continue;
            }
            own();
            Stat there = s.exists(live);
            List<Op> ops = new ArrayList<>(List.of(check(folder + "/gate", -1), set(by, end.bytes(), version)));
            if (completes) {
                ops.add(create(folder + "/end/d-", NOTHING, CreateMode.PERSISTENT_SEQUENTIAL));
            }
            if (there != null && there.getEphemeralOwner() == s.zk.getSessionId()) {
                ops.add(delete(live, -1));
            }
            boolean before = sentEnd;
            sentEnd = true;
            try {
                List<OpResult> made = s.multi(ops);
                return completes ? digits(((OpResult.CreateResult) made.get(2)).getPath()) : -1;
            } catch (Refused e) {
                sentEnd = before;
                if (e.at == 1 && e.code == Code.BADVERSION) {
                    own();
                } else if (e.at < 2) {
                    refusedMember(e);
                } else if (e.at == 2 && completes) {
                    awaitPart(folder + "/end");
                }
            } catch (Unknown e) {
                // the claim tells
            }
        }
    }

    /** Is the exit code. */
    int work() throws Exception {
        join();
        System.out.println("worker " + id + " of " + job.n);
        boolean told = false;
        while (true) {
            try {
                if (!told) {
                    told = true;
                    tellId();
                }
                StringBuilder rows = new StringBuilder();
                new TreeMap<>(roll()).forEach((k, at) -> rows.append(rows.length() == 0 ? "" : ", ")
                        .append(Json.quote("" + k)).append(": ").append(Json.quote(at)));
                System.out.println("roll {" + rows + "}");
                passBarrier();
                int code = execute();
                leave(code == 0 && !stop, code);
                return code;
            } catch (Lost e) {
                rejoin();
            } catch (Ended e) {
                if (e.code != FENCED && e.code != UNREACHABLE && !committed) {
                    leave(false, -1);
                }
                throw e;
            }
        }
    }

    public static void main(String[] args) {
        int code;
        Worker w = null;
        try {
            if (args.length < 5) {
                throw new Ended(USAGE, "Worker PATH IDENTITY IP:PORT BARRIER COMMAND...");
            }
            String[] command = Arrays.copyOfRange(args, 4, args.length);
            Worker started = w = new Worker(args[0], args[1], args[2], args[3], command);
            Runtime.getRuntime().addShutdownHook(new Thread(() -> { // of a signal; main ends the process with halt
                started.stop = true;
                while (true) {
                    Session s = started.s;
                    if (s != null) {
                        s.wake();
                    }
                    try {
                        Thread.sleep(200);
                    } catch (InterruptedException e) {
                        return;
                    }
                }
            }));
            code = w.work();
        } catch (Ended e) {
            System.err.println(e.getMessage());
            code = e.code;
        } catch (Exception e) {
            e.printStackTrace();
            code = FAILED;
        }
        if (w != null) {
            w.killCommand();
            if (w.s != null && !w.s.over) {
                try {
                    w.s.zk.close();
                } catch (InterruptedException e) {
                    // it ends anyhow
                }
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(code);
    }
}
