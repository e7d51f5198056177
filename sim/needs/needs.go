// Package needs is for tests that need more than Go, ZooKeeper and an ordinary user: a program, a terminal, a
// namespace. It says what this machine lacks, and ends the test.
//
// It refuses to be silent. Where MUSTER_TEST_MISSING names a file, as make test does, the name of the test and the
// reason are added to it and the test is skipped; make test prints the file at its end. Without such a file, and with
// MUSTER_TEST_ALL=1, the test fails.
package needs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Missing ends a test that cannot run on this machine. The text says what the machine lacks and, where it can, what to
// do about it.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	lack := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	path := os.Getenv("MUSTER_TEST_MISSING")
	if path != "" {
		binary := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
		if err := add(path, fmt.Sprintf("%s: %s: %s\n", binary, t.Name(), lack)); err != nil {
			t.Fatal(err)
		}
	}
	if path == "" || os.Getenv("MUSTER_TEST_ALL") == "1" {
		t.Fatalf("cannot run here: %s", lack)
	}
	t.Skipf("cannot run here: %s", lack)
}

// add appends a line with one write, so that the lines of several processes stay whole.
func add(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line)
	return err
}

// Program returns the path of a program, which Debian has in these packages.
func Program(t testing.TB, name, packages string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "no %s (apt-get install %s)", name, packages)
	}
	return path
}

// Chromium returns the path of a browser that a program can drive: Chromium or Chrome.
func Chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{
		"chromium", "chromium-browser", "google-chrome", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Missing(t, "no chromium (apt-get install chromium)")
	return ""
}

// FullDevice is a device that nothing can be written to: /dev/full.
func FullDevice(t testing.TB) *os.File {
	t.Helper()
	const name = "/dev/full"
	full, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		Missing(t, "%v", err)
	}
	t.Cleanup(func() { _ = full.Close() })
	if _, err := full.WriteString("x"); !errors.Is(err, syscall.ENOSPC) {
		Missing(t, "%s is not full: %v", name, err)
	}
	return full
}

// Unshare returns a command that runs a program in new namespaces of its own; flags are unshare's. There trial must
// succeed.
func Unshare(t testing.TB, flags []string, trial ...string) []string {
	t.Helper()
	unshare := append([]string{Program(t, "unshare", "util-linux")}, flags...)
	if os.Getuid() != 0 {
		unshare = append(unshare, "--user", "--map-root-user")
	}
	args := append(unshare, trial...)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		Missing(t, "no namespaces: %v: %s (it takes root, or user namespaces: "+
			"sysctl kernel.unprivileged_userns_clone=1)", err, out)
	}
	return unshare
}

// Javac compiles Java with jars of Debian, in these packages, into a temporary directory. It returns the class path of
// the program.
func Javac(t testing.TB, packages string, jars []string, sources ...string) (classpath string) {
	t.Helper()
	dir := t.TempDir()
	for _, jar := range jars {
		file := filepath.Join("/usr/share/java", jar+".jar")
		if _, err := os.Stat(file); err != nil {
			Missing(t, "no %s (apt-get install %s)", file, packages)
		}
		classpath += file + ":"
	}
	classpath += dir
	javac := Program(t, "javac", "default-jdk-headless")
	args := append([]string{"-Xlint:all,-serial,-path", "-Werror", "-d", dir, "-cp", classpath}, sources...)
	if out, err := exec.Command(javac, args...).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return classpath
}

// JavaWorker compiles the worker of examples/java, of the muster in root. It returns its command line, but for its
// arguments, for a JVM that is small and starts soon.
func JavaWorker(t testing.TB, root string) []string {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(root, "examples/java/*.java"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no examples/java in %s: %v", root, err)
	}
	jars := []string{"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop"}
	classpath := Javac(t, "libzookeeper-java libslf4j-java", jars, sources...)
	return []string{"java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath, "Worker"}
}
