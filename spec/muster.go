package spec

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/resource"
	"muster/text"
)

// readMuster decodes the muster block, without which there is no owner mark.
func (l *loader) readMuster(c *Config) {
	c.Home = resource.DefaultHome
	if len(l.blocks["muster"]) == 0 {
		if !l.incomplete {
			d := l.add(codeNoMuster, nil, "the configuration in %s has no muster block", l.dir)
			d.Detail = "its stack is the mark by which muster knows the jobs that it may change"
			d.Help = "add: muster { stack = \"a-name-for-these-jobs\" }"
		}
		return
	}
	b := l.blocks["muster"][0]
	s := l.newScope("muster")
	m := s.content(b.Body, schema{args: []string{"stack", "required_version", "roots", "take_over", "home"}})
	if a := m.args["stack"]; a != nil {
		c.StackAt = at(a.NameRange)
		store(&c.Stack)(s.validText(a, checkStack, true, words{code: codeStack}))
	} else if m.ok {
		s.add(codeMissing, &b.DefRange, "the muster block does not name its stack").Help =
			"add: stack = \"a-name-for-these-jobs\""
	}
	store(&c.Home)(s.checkedText(codePath, m.args["home"], resource.CheckHome))
	c.Roots, _ = s.texts(m.args["roots"], func(text string, at *hcl.Attribute) bool {
		return s.checked(codePath, at, text, resource.CheckRoot)
	})
	c.TakeOver, _ = s.texts(m.args["take_over"], func(text string, at *hcl.Attribute) bool {
		if text == c.Stack && text != "" {
			s.wrong(codeTakeOver, at, cty.NilVal, "take_over names the stack itself").Help = "remove it from the list"
			return false
		}
		return s.checked(codeTakeOver, at, text, checkStack)
	})
}

// checkStack returns an error if a stack cannot have this name. The name is the name of a znode too.
func checkStack(name string) error {
	return resource.CheckName("stack", name)
}

// Searched lists every root in which jobs and groups of this configuration may be, sorted: those of the declared ones,
// the one of the defaults block and those that the muster block adds. It is never empty: the last job may have been
// taken out.
func (c *Config) Searched() []string {
	roots := text.NonEmpty(slices.Concat([]string{c.Default}, c.Roots, rootsOf(c.Declared))...)
	if len(roots) == 0 {
		return []string{resource.DefaultRoot}
	}
	slices.Sort(roots)
	return slices.Compact(roots)
}

// checkVersion compares required_version with our own version. If that fails, it is the only finding: a configuration
// for another version may well be wrong for this one.
func (l *loader) checkVersion() bool {
	ours, _ := version.NewVersion(l.opts.Version) // nil if it is not one
	for _, b := range l.blocks["muster"] {
		c, _, _ := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "required_version"}}})
		a := c.Attributes["required_version"]
		if a == nil {
			continue
		}
		s := l.constantScope("muster")
		text, ok := s.text(a)
		if !ok {
			continue
		}
		constraints, err := parseConstraints(text)
		if err != nil {
			s.wrong(codeConstraint, a, cty.StringVal(text), "required_version: %s", err).Help =
				`write it as ">= 0.1", ">= 0.1, < 2" or "~> 1.2"`
			continue
		}
		if ours != nil && !allow(constraints, ours) {
			l.list = nil
			s.wrong(codeVersion, a, cty.StringVal(text),
				"this is muster %s, which does not satisfy required_version", l.opts.Version).Help =
				"install a version that does, or change required_version"
			return false
		}
	}
	return true
}

// parseConstraints reads one constraint after the other, so that the error names the one that is wrong.
func parseConstraints(text string) (version.Constraints, error) {
	var all version.Constraints
	for part := range strings.SplitSeq(text, ",") {
		c, err := version.NewConstraint(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not a version", strings.TrimLeft(part, " <>=!~"))
		}
		all = append(all, c...)
	}
	return all, nil
}

// allow reports whether v satisfies all constraints. A pre-release counts as the release that it comes before, unless
// a constraint names a pre-release itself.
func allow(constraints version.Constraints, v *version.Version) bool {
	for _, c := range constraints {
		if !c.Check(v) && (c.Prerelease() || !c.Check(v.Core())) {
			return false
		}
	}
	return true
}

func (l *loader) readZooKeeper(c *Config) {
	z := &c.ZooKeeper
	*z = ZooKeeper{Servers: []string{DefaultServer}, SessionTimeout: DefaultSessionTimeout}
	if len(l.blocks["zookeeper"]) == 0 {
		return
	}
	b := l.blocks["zookeeper"][0]
	s := l.newScope("zookeeper")
	body := s.content(b.Body, schema{
		args:   []string{"servers", "session_timeout", "acl"},
		blocks: []blockType{{name: "tls"}, {name: "sasl"}},
	})
	if a := body.args["servers"]; store(&z.Servers)(s.texts(a, s.server)) && len(z.Servers) == 0 {
		s.wrong(codeServer, a, cty.NilVal, "servers must hold at least one host:port").Help =
			"to use the default " + DefaultServer + ", remove the argument"
	}
	store(&z.SessionTimeout)(
		s.duration(body.args["session_timeout"], resource.MinSessionTimeout, resource.MaxSessionTimeout))
	if a := body.args["acl"]; store(&z.ACL)(s.texts(a, s.aclEntry)) && len(z.ACL) == 0 {
		s.wrong(codeACL, a, cty.NilVal, "acl must hold at least one entry").Help = "to use the default, remove the argument"
	}
	if b := s.single(body, "tls"); b != nil {
		l.readTLS(z, b)
	}
	if b := s.single(body, "sasl"); b != nil {
		l.readSASL(z, b)
	}
}

func (l *loader) readTLS(z *ZooKeeper, b *hcl.Block) {
	s := l.newScope("tls of zookeeper")
	body := s.content(b.Body, schema{args: []string{"ca_file", "cert_file", "key_file"}})
	files := map[string]*string{"ca_file": &z.TLS.CAFile, "cert_file": &z.TLS.CertFile, "key_file": &z.TLS.KeyFile}
	for name, file := range files {
		if a := body.args[name]; store(file)(s.text(a)) && *file == "" {
			s.wrong(codeTLS, a, cty.NilVal, "%s must not be empty", name).Help = "remove the argument, or name a file"
		}
	}
	if s.failed {
		return
	}
	if (z.TLS.CertFile == "") != (z.TLS.KeyFile == "") {
		s.add(codeTLS, &b.DefRange, "cert_file and key_file belong together").Help =
			"give both for a client certificate, or neither"
	} else if z.TLS == (resource.TLS{}) {
		s.add(codeTLS, &b.DefRange, "the tls block names no file").Help = "give at least ca_file, or remove the block"
	}
}

func (l *loader) readSASL(z *ZooKeeper, b *hcl.Block) {
	s := l.newScope("sasl of zookeeper")
	texts := z.SASL.Texts()
	const canonicalize, password = "canonicalize_hostname", "password"
	body := s.content(b.Body, schema{args: append(slices.Sorted(maps.Keys(texts)), canonicalize, password)})
	if a := body.args[password]; a != nil {
		d := s.wrong(codeSASL, a, cty.NilVal, "a password is never written in a configuration")
		d.Help = "set MUSTER_SASL_PASSWORD or MUSTER_SASL_PASSWORD_FILE"
		d.hideSource()
	}
	for name, to := range texts {
		if a := body.args[name]; store(to)(s.text(a)) && *to == "" {
			s.wrong(codeSASL, a, cty.NilVal, "%s must not be empty", name).Help = "remove the argument"
		}
	}
	if v, ok := s.decode(body.args[canonicalize], cty.Bool, "true or false"); ok {
		z.SASL.CanonicalizeHostname = v.True()
	}
	if s.failed {
		return
	}
	if why, help := z.SASL.Problem(); why != "" {
		s.add(codeSASL, &b.DefRange, "%s", why).Help = help
	}
}

func (s *scope) server(text string, a *hcl.Attribute) bool {
	bad := func(why, help string) bool {
		s.wrong(codeServer, a, cty.StringVal(text), "a server is host:port; %s", why).Help = help
		return false
	}
	if strings.Contains(text, "@") {
		d := s.wrong(codeServer, a, cty.NilVal, "a server is host:port; this has an @, and so perhaps a password")
		d.Help = "MUSTER_ZK_AUTH takes credentials"
		d.hideSource()
		return false
	}
	if strings.Contains(text, ",") {
		servers, path, _ := strings.Cut(text, "/")
		help := "write a list: " + listOf(strings.Split(servers, ","))
		if path != "" {
			help += ", and put the jobs below the path: root = " + quote("/"+path+"/jobs")
		}
		return bad("this holds several", help)
	}
	if i := strings.IndexByte(text, '/'); i >= 0 {
		return bad("it has no path", "leave the path away and put the jobs below it: root = "+quote(text[i:]+"/jobs"))
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		if ip, e := netip.ParseAddr(strings.Trim(text, "[]")); e == nil {
			return bad("this has no port", "write "+quote(net.JoinHostPort(ip.String(), "2181")))
		}
		if !strings.Contains(text, ":") && text != "" {
			return bad("this has no port", "write "+quote(text+":2181"))
		}
		return bad("this is not", "write it as \"zk1:2181\" or \"[::1]:2181\"")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return bad("the port is not a number from 1 to 65535", "ZooKeeper's usual port is 2181")
	}
	if host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return bad("the host is missing or malformed", "write it as \"zk1:2181\"")
	}
	return true
}

func listOf(texts []string) string {
	quoted := text.Each(texts, func(t string) string { return quote(strings.TrimSpace(t)) })
	return "[" + strings.Join(quoted, ", ") + "]"
}

func (s *scope) aclEntry(text string, a *hcl.Attribute) bool {
	why, help := aclProblem(text)
	if why == "" {
		return true
	}
	d := s.wrong(codeACL, a, cty.StringVal(text), "%s", why)
	if d.Help = help; strings.HasPrefix(text, "digest:") { // perhaps a password is there in place of the hash
		d.hideSource()
	}
	return false
}

// aclProblem says what is wrong with an ACL entry, and what to do; both are empty if nothing is.
func aclProblem(text string) (why, help string) {
	first, last := strings.IndexByte(text, ':'), strings.LastIndexByte(text, ':')
	if first < 0 || first == last {
		return "an ACL entry is scheme:id:perms", `such as "auth::cdrwa" or "world:anyone:r"`
	}
	scheme, id, perms := text[:first], text[first+1:last], text[last+1:]
	schemes := []string{"world", "auth", "digest", "sasl", "ip", "x509"}
	if !slices.Contains(schemes, scheme) {
		return fmt.Sprintf("there is no ACL scheme %q", scheme), meant(scheme, schemes, "schemes are")
	}
	for i, r := range perms {
		if !strings.ContainsRune("cdrwa", r) || strings.ContainsRune(perms[:i], r) {
			why := fmt.Sprintf("%q are not permissions", perms)
			if scheme == "digest" { // perhaps they were forgotten, and this is a password
				why = "it does not end with permissions"
			}
			return why, "use each of c d r w a at most once: create, delete, read, write, admin"
		}
	}
	if perms == "" {
		return "an ACL entry without permissions allows nothing", "add some of c d r w a: " + quote(text+"cdrwa")
	}
	return idProblem(scheme, id, perms)
}

func idProblem(scheme, id, perms string) (why, help string) {
	switch scheme {
	case "world":
		if id != "anyone" {
			return "the only id of the scheme world is anyone", "write " + quote("world:anyone:"+perms)
		}
	case "auth":
		if id != "" {
			return "the scheme auth stands for whoever is logged in and has no id", "write " + quote("auth::"+perms)
		}
	case "digest":
		user, hash, _ := strings.Cut(id, ":")
		if sum, err := base64.StdEncoding.DecodeString(hash); user == "" || err != nil || len(sum) != 20 {
			return "the id of the scheme digest is user:hash, the hash being the Base64 of a SHA-1",
				"never write the password itself here; MUSTER_ZK_AUTH takes it"
		}
	case "ip":
		if _, err := netip.ParsePrefix(id); err != nil {
			if _, err := netip.ParseAddr(id); err != nil {
				return fmt.Sprintf("%q is neither an IP address nor a range of them", id),
					`write "ip:10.0.0.7:r" or "ip:10.0.0.0/8:r"`
			}
		}
	case "sasl":
		if id == "" {
			return "the id of the scheme sasl is the name that the servers give a user", `write "sasl:me@EXAMPLE:cdrwa"`
		}
	case "x509":
		if id == "" {
			return "the id of the scheme x509 is the subject of a certificate", `write "x509:CN=me,O=us:cdrwa"`
		}
	}
	return "", ""
}

// warnOpen warns if what apply creates can be changed by everybody.
func (l *loader) warnOpen(c *Config) {
	open := c.ZooKeeper.ACL == nil && !l.opts.HasCredentials && c.ZooKeeper.SASL.Mechanism == ""
	for _, entry := range c.ZooKeeper.ACL {
		perms, ok := strings.CutPrefix(entry, "world:anyone:")
		open = open || ok && strings.ContainsAny(perms, "cdwa")
	}
	if !open || len(l.blocks["muster"]) == 0 {
		return
	}
	b := l.blocks["muster"][0]
	if zk := l.blocks["zookeeper"]; len(zk) > 0 {
		b = zk[0]
	}
	kinds := text.Each(c.Declared, func(d resource.Declaration) string { return d.Kind().Name + "s" })
	what := cmp.Or(text.And(slices.Compact(kinds)), "jobs")
	d := l.add(codeOpen, &b.DefRange, "everybody who reaches ZooKeeper may change these %s", what)
	d.Severity = Warning
	d.Help = `log in (a sasl block, or MUSTER_ZK_AUTH=digest:user:password), and set acl = ["auth::cdrwa"]`
}
