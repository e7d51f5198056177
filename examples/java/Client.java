import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/** What a worker needs of ZooKeeper: sessions that end in time, reads, and multis whose outcome is told. */
abstract class Client {
    static final int FAILED = 1, UNREADABLE = 3, UNREACHABLE = 8, USAGE = 64, LATE = 70, ABORTED = 71, FENCED = 72;
    static final int FULL = 73, NO_JOB = 74, STOPPED = 143;
    static final byte[] NOTHING = {};
    static final long SECOND = 1_000_000_000, LOOK_AGAIN = 5 * SECOND;

    final Set<Long> sessions = new HashSet<>(); // all that this process has had
    Session s;
    volatile boolean stop; // it was asked to end

    /** Whether a signal ends the wait for a server. */
    abstract boolean givesUp();

    /** Ends what relies on a session. */
    abstract void sessionEnds();

    /** The worker ends with this exit code. */
    static class Ended extends Exception {
        final int code;

        Ended(int code, String why) {
            super(why);
            this.code = code;
        }
    }

    /** The session is lost, or may be. */
    static class Lost extends Exception {}

    /** A multi may have happened. */
    static class Unknown extends Exception {}

    /** A multi did not happen: operation at was refused. */
    static class Refused extends Exception {
        final int at;
        final Code code;

        Refused(int at, Code code) {
            super(code + " of operation " + at);
            this.at = at;
            this.code = code;
        }

        boolean is(int at, Code code) {
            return this.at == at && this.code == code;
        }
    }

    /** A session, which is over when ZooKeeper says so, or when no sync was answered for its timeout. */
    class Session implements Watcher {
        final ZooKeeper zk;
        long answered; // when the last request was sent that was answered
        int events; // counts what may have changed something
        boolean over;

        /** Waits for a server, until a time of System.nanoTime. What is read afterwards is as new as the session. */
        Session(String timeout, long until) throws Exception {
            zk = new ZooKeeper(servers(), (int) (duration(timeout) / 1_000_000), this);
            synchronized (this) {
                while (zk.getState() != ZooKeeper.States.CONNECTED && !givesUp()
                        && System.nanoTime() - until < 0) {
                    wait(50);
                }
            }
            if (zk.getState() != ZooKeeper.States.CONNECTED) {
                end();
                throw givesUp()
                        ? new Ended(STOPPED, "asked to end") : new Ended(UNREACHABLE, "no server answers");
            }
            sessions.add(zk.getSessionId());
            answered = System.nanoTime(); // nothing relies on it before that sync is answered
            daemon(this::beat);
            sync();
        }

        /** Sends a sync now and then, and ends the session when none was answered for too long. */
        void beat() throws InterruptedException {
            while (true) {
                long now = System.nanoTime(), timeout = zk.getSessionTimeout() * 1_000_000L;
                synchronized (this) {
                    if (left() <= 0) {
                        end();
                    }
                    if (over) {
                        return;
                    }
                }
                if (zk.getState() == ZooKeeper.States.CONNECTED) {
                    zk.sync("/", (code, at, context) -> answer(code, now), null);
                }
                Thread.sleep(Math.max(1, Math.min(timeout / 10, left()) / 1_000_000));
            }
        }

        /** How long it lasts without another answer, in nanoseconds. */
        synchronized long left() {
            return zk.getSessionTimeout() * 1_000_000L - (System.nanoTime() - answered);
        }

        synchronized void answer(int code, long sent) {
            if (code == Code.OK.intValue() && sent - answered > 0) {
                answered = sent;
            }
        }

        /** Ends it, and first of all what relies on it. */
        synchronized void end() {
            if (!over) {
                over = true;
                sessionEnds();
                wake();
                daemon(zk::close);
            }
        }

        @Override
        public void process(WatchedEvent e) {
            if (e.getState() == Event.KeeperState.Expired) {
                end();
            }
            wake();
        }

        synchronized void wake() {
            events++;
            notifyAll();
        }

        synchronized int seen() {
            return events;
        }

        /** Waits for an event after seen, until a time, and reports whether it came. */
        synchronized boolean await(int seen, long until) throws InterruptedException, Lost {
            while (!over && events == seen && System.nanoTime() - until < 0) {
                wait(Math.max(1, Math.min(1000, (until - System.nanoTime()) / 1_000_000)));
            }
            if (over) {
                throw new Lost();
            }
            return events != seen;
        }

        void connected() throws InterruptedException, Lost {
            while (true) {
                int seen = seen();
                if (zk.getState() == ZooKeeper.States.CONNECTED) {
                    return;
                }
                await(seen, System.nanoTime() + SECOND / 10);
            }
        }

        interface Call<T> {
            T make() throws KeeperException, InterruptedException;
        }

        /** Makes a call that changes nothing, until it is answered. NoNode is null. */
        <T> T read(Call<T> call) throws Exception {
            while (true) {
                connected();
                try {
                    return call.make();
                } catch (KeeperException.NoNodeException e) {
                    return null;
                } catch (KeeperException.ConnectionLossException | KeeperException.SessionMovedException e) {
                    // on the next connection
                } catch (KeeperException.SessionExpiredException e) {
                    end();
                } catch (KeeperException.NoAuthException e) {
                    throw new Ended(UNREADABLE, "no permission to read " + e.getPath());
                }
            }
        }

        Stat exists(String at) throws Exception {
            return read(() -> zk.exists(at, true));
        }

        /** A body and its Stat, with a watch, also on what is not there. */
        Node get(String at) throws Exception {
            while (true) {
                Node n = read(() -> {
                    Stat stat = new Stat();
                    return new Node(zk.getData(at, true, stat), stat);
                });
                if (n != null || exists(at) == null) {
                    return n;
                }
            }
        }

        /** The names, without a watch; null if it is not there. */
        List<String> children(String at) throws Exception {
            return read(() -> zk.getChildren(at, false));
        }

        /** What is read afterwards is as new as this call. */
        void sync() throws Exception {
            while (true) {
                connected();
                Integer[] answer = {null};
                zk.sync("/", (code, at, context) -> {
                    synchronized (this) {
                        answer[0] = code;
                        notifyAll();
                    }
                }, null);
                synchronized (this) {
                    while (answer[0] == null && !over) {
                        wait(1000);
                    }
                }
                if (answer[0] != null && answer[0] == Code.OK.intValue()) {
                    return;
                }
            }
        }

        List<OpResult> multi(List<Op> ops) throws Exception {
            connected();
            try {
                return zk.multi(ops);
            } catch (KeeperException.ConnectionLossException | KeeperException.SessionMovedException e) {
                sync();
                throw new Unknown();
            } catch (KeeperException.SessionExpiredException e) {
                end();
                throw new Lost();
            } catch (KeeperException.NoAuthException e) {
                throw new Ended(FAILED, "no permission to write");
            } catch (KeeperException e) {
                for (int i = 0; e.getResults() != null && i < e.getResults().size(); i++) {
                    if (e.getResults().get(i) instanceof OpResult.ErrorResult r && r.getErr() != 0) {
                        throw new Refused(i, Code.get(r.getErr()));
                    }
                }
                throw e;
            }
        }
    }

    record Node(byte[] body, Stat stat) {}

    static String servers() {
        return System.getenv().getOrDefault("MUSTER_SERVERS", "127.0.0.1:2181");
    }

    interface Action {
        void run() throws Exception;
    }

    static void daemon(Action action) {
        Thread t = new Thread(() -> {
            try {
                action.run();
            } catch (Exception e) {
                System.err.println(e);
            }
        });
        t.setDaemon(true);
        t.start();
    }

    /** Nanoseconds of a duration such as 1m40s. */
    static long duration(String text) throws Ended {
        Map<String, Double> units = Map.of("h", 3600e9, "m", 60e9, "s", 1e9, "ms", 1e6, "us", 1e3, "ns", 1.0);
        if (!text.matches("(\\d{1,12}(\\.\\d{1,12})?(h|ms|m|s|us|ns))+")) {
            throw new Ended(UNREADABLE, text + " is no duration");
        }
        double sum = 0;
        var parts = java.util.regex.Pattern.compile("([\\d.]+)([^\\d.]+)").matcher(text);
        while (parts.find()) {
            sum += Double.parseDouble(parts.group(1)) * units.get(parts.group(2));
        }
        return (long) Math.min(sum, 1e18);
    }
}
