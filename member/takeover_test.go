package member_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/member"
	"muster/sim/needs"
	"muster/zkstate/zkconn"
)

// childLeader makes this test binary a member that leads: connect string, root, group, identity, session timeout.
const childLeader = "MUSTER_TEST_LEADER"

// runLeader is the counterpart of testdata/Latch.java: it says the same, and leaves at a line of standard input.
func runLeader(ctx context.Context, args []string) error {
	timeout, err := time.ParseDuration(args[4])
	if err != nil {
		return err
	}
	s, err := zkconn.Dial(ctx, zkconn.Config{Servers: strings.Split(args[0], ","), Timeout: timeout})
	if err != nil {
		return err
	}
	m, err := member.Join(ctx, s, member.Config{
		Root: args[1], Group: args[2], Identity: args[3], Version: "1.0", Can: []string{"coordinator"},
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	leading, leave := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() {
		done <- m.Lead(leading, "coordinator", func(ctx context.Context, _ *member.Hold) error {
			fmt.Println("leader")
			<-ctx.Done()
			return nil
		})
	}()
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		leave(member.ErrLeaving)
	}()
	<-done
	return m.Leave()
}

// candidate is a process that may lead.
type candidate struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines <-chan string
}

func startCandidate(t testing.TB, cmd *exec.Cmd) *candidate {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range lines {
		}
	})
	return &candidate{cmd, in, lines}
}

// says waits for a line.
func (c *candidate) says(t testing.TB, want string) {
	t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				t.Fatalf("it ended before it said %q", want)
			}
			if line == want {
				return
			}
		case <-limit:
			t.Fatalf("it has not said %q", want)
		}
	}
}

// contender is one of the two recipes: a leader, and another candidate behind it.
type contender struct {
	start         func() *candidate
	first, second *candidate
	leave, kill   []time.Duration
}

// begin starts both candidates.
func (c *contender) begin(t testing.TB) {
	t.Helper()
	c.first = c.start()
	c.first.says(t, "leader")
	c.second = c.start()
	c.second.says(t, "ready")
}

// takeOver ends the leader after some time, and starts another candidate. It returns how long nobody led.
func (c *contender) takeOver(t testing.TB, after time.Duration, kill bool) time.Duration {
	t.Helper()
	<-time.After(after) // heartbeats of sessions have any phase then
	begun := time.Now()
	if kill {
		if err := c.first.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	} else if _, err := io.WriteString(c.first.in, "leave\n"); err != nil {
		t.Fatal(err)
	}
	c.second.says(t, "leader")
	took := time.Since(begun)
	c.first, c.second = c.second, c.start()
	c.second.says(t, "ready")
	return took
}

// curator starts candidates of Curator's LeaderLatch.
func curator(t testing.TB, path string, timeout time.Duration) *contender {
	t.Helper()
	const jars = "/usr/share/java/"
	var classes []string
	for _, jar := range []string{
		"curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute", "slf4j-api", "guava",
		"netty-all",
	} {
		file := jars + jar + ".jar"
		if _, err := os.Stat(file); err == nil {
			classes = append(classes, file)
		} else if jar == "curator-recipes" {
			needs.Missing(t, "no %s (apt-get install libcurator-recipes-java)", file)
		}
	}
	dir := t.TempDir()
	classpath := strings.Join(append(classes, dir), ":")
	javac := needs.Program(t, "javac", "default-jdk-headless")
	if out, err := exec.Command(javac, "-d", dir, "-cp", classpath, filepath.Join("testdata", "Latch.java")).
		CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return &contender{start: func() *candidate {
		return startCandidate(t, exec.Command("java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "Latch",
			servers.Connect(), path, fmt.Sprint(timeout.Milliseconds())))
	}}
}

// muster starts members of a group with one leader.
func muster(t testing.TB, timeout time.Duration) *contender {
	t.Helper()
	f := newFixture(t, "coordinator")
	n := 0
	return &contender{start: func() *candidate {
		n++
		cmd := exec.Command(os.Args[0])
		args := []string{servers.Connect(), f.group.Root, f.group.Name, fmt.Sprintf("m-%d", n), timeout.String()}
		cmd.Env = append(os.Environ(), childLeader+"="+strings.Join(args, " "))
		cmd.Stderr = os.Stderr
		return startCandidate(t, cmd)
	}}
}

// compare lets both recipes take over in turn, with the same session timeout, and returns the times.
func compare(t testing.TB, rounds int, timeout time.Duration) (ours, theirs *contender) {
	t.Helper()
	ours, theirs = muster(t, timeout), curator(t, "/latch-"+fmt.Sprint(rand.Uint64()), timeout)
	for _, c := range []*contender{ours, theirs} {
		c.begin(t)
		c.takeOver(t, 0, false) // warms up
	}
	for i := range rounds {
		after := time.Duration(float64(timeout) * rand.Float64())
		order := []*contender{ours, theirs}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			c.leave = append(c.leave, c.takeOver(t, after/10, false))
		}
		for _, c := range order {
			c.kill = append(c.kill, c.takeOver(t, after, true))
		}
	}
	return ours, theirs
}

// median is the middle one of times.
func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// BenchmarkTakeOver measures how long nobody leads when the leader leaves and when it is killed, beside Curator's
// LeaderLatch in the same run: medians of rounds in turn, all processes with the same session timeout. The ratios are
// muster's time over Curator's.
func BenchmarkTakeOver(b *testing.B) {
	for range b.N {
		ours, theirs := compare(b, 15, 3*time.Second)
		ms := func(name string, times []time.Duration) {
			b.ReportMetric(float64(median(times).Microseconds())/1000, name+"-ms")
		}
		ms("leave", ours.leave)
		ms("kill", ours.kill)
		ms("curator-leave", theirs.leave)
		ms("curator-kill", theirs.kill)
		b.ReportMetric(float64(median(ours.leave))/float64(median(theirs.leave)), "leave-ratio")
		b.ReportMetric(float64(median(ours.kill))/float64(median(theirs.kill)), "kill-ratio")
	}
}
