package zkserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"muster/dev/daemon"
)

// configure writes the files of the i-th server.
func (e *Ensemble) configure(i int, places []place, o Options, found installation) (*Server, error) {
	dir := filepath.Join(e.dir, strconv.Itoa(i+1))
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		return nil, err
	}
	files := map[string]string{
		"zoo.cfg":     e.settings(dir, places[i], places, o),
		"data/myid":   strconv.Itoa(i + 1),
		"logback.xml": logback,
	}
	if o.login(i) != "" {
		files[loginFile] = o.login(i)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	s := &Server{addr: daemon.Loopback(places[i].client), dir: dir, java: found.java, args: arguments(o, i, found)}
	s.dial = new(net.Dialer).DialContext
	if o.TLS {
		config, err := e.certs.Config()
		if err != nil {
			return nil, err
		}
		s.dial = (&tls.Dialer{Config: config}).DialContext
	}
	return s, nil
}

// logback is logback.xml, for distributions that use logback. Without the file, logback writes every debug message.
const logback = `<configuration>
<appender name="err" class="ch.qos.logback.core.ConsoleAppender"><target>System.err</target>
<encoder><pattern>%d %-5level %logger{0}: %msg%n</pattern></encoder></appender>
<root level="ERROR"><appender-ref ref="err"/></root></configuration>
`

const loginFile = "jaas.conf"

// login is the login section of the i-th server.
func (o Options) login(i int) string {
	if i < len(o.Logins) {
		return o.Logins[i]
	}
	return ""
}

// arguments are the arguments of java, for a process in the directory of the i-th server.
func arguments(o Options, i int, found installation) []string {
	args := []string{
		// C1 alone starts fastest. One thread for garbage collection leaves the cores to other processes.
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xms64m", "-Xmx" + o.Heap,
		"-Dzookeeper.jmx.log4j.disable=true",
		"-Dzookeeper.electionPortBindRetry=1",
		"-Dzookeeper.leaderConnectDelayDuringRetryMs=20", // default 100
		"-Dzookeeper.nio.numWorkerThreads=0",             // default twice the cores; a fifth less work without
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
	}
	if o.login(i) != "" {
		args = append(args, "-Djava.security.auth.login.config="+loginFile)
	}
	args = append(args, o.Java...)
	classes := strings.Join(append([]string{"."}, found.classes...), string(os.PathListSeparator))
	return append(args, "-cp", classes, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg")
}

// settings is the text of zoo.cfg. The backlog and the limit of connections are high, since tests open a thousand
// sessions from one address.
func (e *Ensemble) settings(dir string, at place, places []place, o Options) string {
	var b strings.Builder
	set := func(key string, value any) { fmt.Fprintf(&b, "%s=%s\n", key, propertyEscape(fmt.Sprint(value))) }
	set("tickTime", o.TickTime.Milliseconds())
	set("dataDir", filepath.Join(dir, "data"))
	set("admin.enableServer", false)
	set("maxClientCnxns", 0)
	set("clientPortListenBacklog", 4096)
	set("4lw.commands.whitelist", "*")
	set("forceSync", "no")
	set("extendedTypesEnabled", true)
	set("minSessionTimeout", MinSessionTimeout.Milliseconds())
	set("maxSessionTimeout", MaxSessionTimeout.Milliseconds())
	if o.SuperPassword != "" {
		sum := sha1.Sum([]byte("super:" + o.SuperPassword))
		set("DigestAuthenticationProvider.superDigest", "super:"+base64.StdEncoding.EncodeToString(sum[:]))
	}
	if o.Logins != nil { // for ACLs: also on a server that logs nobody in
		set("authProvider.1", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
	}
	if o.Netty {
		set("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory")
	}
	if o.TLS {
		set("secureClientPort", at.client)
		set("secureClientPortAddress", "127.0.0.1")
		set("ssl.keyStore.type", "PEM")
		set("ssl.keyStore.location", e.certs.server)
		set("ssl.trustStore.type", "PEM")
		set("ssl.trustStore.location", e.certs.CAFile)
		set("ssl.clientAuth", map[bool]string{false: "none", true: "need"}[o.ClientCert])
		set("ssl.hostnameVerification", false)
	} else {
		set("clientPort", at.client)
		set("clientPortAddress", "127.0.0.1")
	}
	if len(places) > 1 {
		set("initLimit", 20)
		set("syncLimit", 8)
		for i, p := range places {
			set(fmt.Sprintf("server.%d", i+1), fmt.Sprintf("127.0.0.1:%d:%d", p.quorum, p.election))
		}
	}
	return b.String()
}

// propertyEscape escapes a value for a Java properties file.
func propertyEscape(value string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(value)) {
		switch {
		case unit == '\\':
			b.WriteString(`\\`)
		case unit > 0x7e:
			fmt.Fprintf(&b, `\u%04x`, unit)
		default:
			b.WriteByte(byte(unit))
		}
	}
	return b.String()
}

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
	return installation{java: java, classes: classes}, err
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

// place holds the ports of one server.
type place struct {
	client           int
	quorum, election int // only for three servers
}

// choosePlaces reserves the ports that o names, and free ones, in place of those that were reserved before.
func (e *Ensemble) choosePlaces(o Options) ([]place, error) {
	errs := []error{e.freePorts()}
	take := func(port int) int {
		r, err := daemon.ReservePort(port)
		if err != nil {
			errs = append(errs, fmt.Errorf("zookeeper: %w", err))
			return 0
		}
		e.ports = append(e.ports, r)
		return r.Port
	}
	places := make([]place, o.Servers)
	for i := range places {
		port := o.Port
		if port != 0 {
			port += i
		}
		places[i].client = take(port)
	}
	for i := range places {
		if o.Servers > 1 {
			places[i].quorum, places[i].election = take(0), take(0)
		}
	}
	for _, r := range e.ports { // after all are reserved, so that they differ
		errs = append(errs, r.AllowListen())
	}
	return places, errors.Join(errs...)
}

// Refusing returns an address at which every connection is refused. On Linux no other program gets the port before free
// is called.
func Refusing() (addr string, free func() error, err error) {
	r, err := daemon.ReservePort(0)
	if err != nil {
		return "", nil, err
	}
	return daemon.Loopback(r.Port), r.Close, r.Refuse()
}

// Certs names PEM files for clients of an ensemble with TLS. The certificate is for localhost and 127.0.0.1. A client
// with CertFile has the identity "CN=client" in ZooKeeper's scheme x509.
type Certs struct {
	CAFile, CertFile, KeyFile string

	server string // key and certificate of the servers
}

// Config returns a client's TLS configuration with these files, for connections to "localhost".
func (c Certs) Config() (*tls.Config, error) {
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s: no certificate", c.CAFile)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "localhost"}, nil
}

// makeCerts writes a new certificate into dir, signed by itself. The servers and the clients have it, and trust it.
func makeCerts(dir string) (Certs, error) {
	cert, key, err := issue()
	if err != nil {
		return Certs{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Certs{}, err
	}
	at := filepath.Join(dir, "cert.pem")
	c := Certs{CAFile: at, CertFile: at, KeyFile: filepath.Join(dir, "key.pem"), server: filepath.Join(dir, "server.pem")}
	for path, text := range map[string][]byte{at: cert, c.KeyFile: key, c.server: slices.Concat(key, cert)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return Certs{}, err
		}
	}
	return c, nil
}

// issue creates a certificate and its key, in PEM.
func issue() (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "client"},
		NotBefore:   time.Now().Add(-time.Hour),
		NotAfter:    time.Now().AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
