import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.RetryOneTime;

/**
 * A candidate of Curator's LeaderLatch: Latch CONNECT PATH SESSION-MILLISECONDS. It prints "ready" when it is in the
 * queue, and "leader" when it leads. A line on standard input, or its end, makes it leave.
 */
public class Latch {
    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        int timeout = Integer.parseInt(args[2]);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], timeout, timeout, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        LeaderLatch latch = new LeaderLatch(client, args[1], String.valueOf(ProcessHandle.current().pid()));
        latch.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                say("leader");
            }

            @Override
            public void notLeader() {
                say("not leader");
            }
        });
        latch.start();
        while (latch.getParticipants().stream().noneMatch(p -> p.getId().equals(latch.getId()))) {
            Thread.sleep(10);
        }
        say("ready");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        latch.close();
        client.close();
    }
}
