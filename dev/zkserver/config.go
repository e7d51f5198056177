package zkserver

import (
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	s := &Server{
		addr: daemon.Loopback(places[i].client), dial: &net.Dialer{}, dir: dir, java: found.java, args: arguments(o, found),
	}
	if o.TLS {
		config, err := e.certs.Config()
		if err != nil {
			return nil, err
		}
		s.dial = &tls.Dialer{Config: config}
	}
	return s, nil
}

// logback is logback.xml, for distributions that use logback. Without the file, logback writes every debug message.
const logback = `<configuration>
<appender name="err" class="ch.qos.logback.core.ConsoleAppender"><target>System.err</target>
<encoder><pattern>%d %-5level %logger{0}: %msg%n</pattern></encoder></appender>
<root level="ERROR"><appender-ref ref="err"/></root></configuration>
`

// arguments are the arguments of java, for a process in the server's directory.
func arguments(o Options, found installation) []string {
	args := []string{
		// C1 alone starts fastest. One thread for garbage collection leaves the cores to other processes.
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xms64m", "-Xmx" + o.Heap,
		"-Dzookeeper.jmx.log4j.disable=true",
		"-Dzookeeper.electionPortBindRetry=1",
		"-Dzookeeper.leaderConnectDelayDuringRetryMs=20", // default 100
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
	}
	if o.Jute > 0 {
		args = append(args, "-Djute.maxbuffer="+strconv.Itoa(o.Jute)) // ZooKeeper ignores it in zoo.cfg
	}
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
	if o.Netty {
		set("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory")
	}
	if o.TLS {
		e.setTLS(set, at, o.ClientCert)
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

func (e *Ensemble) setTLS(set func(string, any), at place, clientCert bool) {
	auth := "none"
	if clientCert {
		auth = "need"
	}
	set("secureClientPort", at.client)
	set("secureClientPortAddress", "127.0.0.1")
	set("ssl.keyStore.type", "PEM")
	set("ssl.keyStore.location", e.certs.server)
	set("ssl.trustStore.type", "PEM")
	set("ssl.trustStore.location", e.certs.CAFile)
	set("ssl.clientAuth", auth)
	set("ssl.hostnameVerification", false)
}

// propertyEscape escapes a value for a Java properties file.
func propertyEscape(value string) string {
	var b strings.Builder
	for _, r := range value {
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r > 0xffff:
			hi, lo := 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		case r > 0x7e:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
