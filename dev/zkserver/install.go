package zkserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNotInstalled means that this machine lacks Java, ZooKeeper or the jars for TLS. Show the error to the user: it
// names the command that installs them.
var ErrNotInstalled = errors.New("not installed")

// machine is the machine on which locate searches.
type machine struct {
	root   string // "/", or another folder in a test
	goos   string
	getenv func(string) string
}

// installation is what a server needs to run.
type installation struct {
	java    string
	classes []string // class path, in order
}

func (m machine) locate(netty bool) (installation, error) {
	java, err := m.java()
	if err != nil {
		return installation{}, err
	}
	classes, err := m.classes(netty)
	if err != nil {
		return installation{}, err
	}
	return installation{java: java, classes: classes}, nil
}

// java is the path of java. Homebrew's folder comes before the PATH: /usr/bin/java of macOS only says that Java is not
// installed.
func (m machine) java() (string, error) {
	if home := m.getenv("JAVA_HOME"); home != "" {
		if java := filepath.Join(home, "bin", "java"); exists(java) {
			return java, nil
		}
		return "", m.missing("java", "no bin/java in JAVA_HOME="+home)
	}
	for _, prefix := range m.brew() {
		if java := filepath.Join(prefix, "opt/openjdk/bin/java"); exists(java) {
			return java, nil
		}
	}
	for _, dir := range filepath.SplitList(m.getenv("PATH")) {
		if java, err := exec.LookPath(filepath.Join(dir, "java")); err == nil && filepath.IsAbs(java) {
			return java, nil
		}
	}
	return "", m.missing("java", "no java in PATH")
}

// classes is the class path. It includes a logger that writes to standard error, and if netty is set, Netty's jars.
func (m machine) classes(netty bool) ([]string, error) {
	if home := m.getenv("ZOOKEEPER_HOME"); home != "" {
		for _, dir := range []string{"lib", "libexec/lib", "share/zookeeper"} {
			if classes, ok := jars(filepath.Join(home, dir)); ok {
				return classes, nil
			}
		}
		return nil, m.missing("zookeeper", "no lib/zookeeper-*.jar in ZOOKEEPER_HOME="+home)
	}
	if debian := filepath.Join(m.root, "usr/share/java"); exists(filepath.Join(debian, "zookeeper.jar")) {
		return m.debian(debian, netty)
	}
	for _, prefix := range m.brew() {
		if classes, ok := jars(filepath.Join(prefix, "opt/zookeeper/libexec/lib")); ok {
			return classes, nil
		}
	}
	return nil, m.missing("zookeeper", "no ZooKeeper jars found")
}

// debian is the class path on Debian. The manifest of Debian's zookeeper.jar lacks a logger and some of Netty's jars
// (netty-all.jar is empty there).
func (m machine) debian(dir string, netty bool) ([]string, error) {
	classes := []string{filepath.Join(dir, "zookeeper.jar"), filepath.Join(dir, "slf4j-simple.jar")}
	if !netty {
		return classes, nil
	}
	for _, name := range []string{"netty-codec.jar", "netty-resolver.jar", "netty-handler.jar"} {
		jar := filepath.Join(dir, name)
		if !exists(jar) {
			return nil, m.missing("netty for ZooKeeper", "no "+jar)
		}
		classes = append(classes, jar)
	}
	return classes, nil
}

// jars is the class path of ZooKeeper's binary release, which has all jars in one folder.
func jars(dir string) ([]string, bool) {
	found, err := filepath.Glob(filepath.Join(dir, "zookeeper-[0-9]*.jar"))
	return []string{filepath.Join(dir, "*")}, err == nil && len(found) > 0
}

// brew lists the folders in which Homebrew may be.
func (m machine) brew() []string {
	return []string{
		filepath.Join(m.root, "opt/homebrew"), filepath.Join(m.root, "usr/local"),
		filepath.Join(m.root, "home/linuxbrew/.linuxbrew"),
	}
}

func (m machine) missing(what, why string) error {
	remedy := "install Java and ZooKeeper 3.5 or newer, and set ZOOKEEPER_HOME to the folder that holds its lib"
	switch {
	case exists(filepath.Join(m.root, "etc/debian_version")):
		remedy = "run: apt-get install -y zookeeper libnetty-java"
	case m.goos == "darwin":
		remedy = "run: brew install zookeeper"
	}
	return fmt.Errorf("%s is %w (%s); %s", what, ErrNotInstalled, why, remedy)
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}
