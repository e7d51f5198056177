package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/page"
	"muster/resource"
	"muster/resource/queue"
	"muster/spec"
	"muster/tasks"
	"muster/tasks/store"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

type serveOptions struct {
	search        searchFlags // config and vars
	listen        string
	cert, key     string
	hosts         []string
	stacks, roots []string
}

func newServeCmd(p *process) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a read-only web page, its API, and metrics",
		Long: `Serves a web page that shows jobs, groups, queues and the history of applies,
and changes as they do; the same as JSON below /api/; metrics for Prometheus at
/metrics; and /healthz. It only reads. It shows what the configuration here
declares, or what --stack or --root names; without any of them everything that
a stack has.

It listens on this machine only, unless --listen says otherwise. Then let it ask
for a token, which the file MUSTER_SERVE_TOKEN_FILE holds, and give it a
certificate: a browser sends the token as a password.`,
		Example: `  muster serve
  muster serve --stack etl --listen 127.0.0.1:0
  MUSTER_SERVE_TOKEN_FILE=/etc/muster/token muster serve --listen :8443 \
    --listen-cert serve.crt --listen-key serve.key --allow-host muster.example`,
		Args:              argCount(0, 0, ""),
		PersistentPreRunE: p.startLong,
		RunE:              func(cmd *cobra.Command, _ []string) error { return runServe(cmd.Context(), p, o) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.listen, "listen", "127.0.0.1:8090", "listen at `ADDR`; port 0 is a free port")
	fs.StringVar(&o.cert, "listen-cert", "", "serve HTTPS with the certificate in `FILE`")
	fs.StringVar(&o.key, "listen-key", "", "the key of --listen-cert is in `FILE`")
	fs.StringSliceVar(&o.hosts, "allow-host", nil, "answer also when called by this `NAME`; may be repeated")
	fs.StringSliceVar(&o.stacks, "stack", nil, "show the roots of this `STACK`; may be repeated")
	fs.StringSliceVar(&o.roots, "root", nil, "show what is below znode `PATH` (MUSTER_ROOT); may be repeated")
	o.search.addConfigTo(fs)
	p.completeSearch(cmd, &o.search)
	return cmd
}

func runServe(ctx context.Context, p *process, o serveOptions) error {
	c, err := p.serveConfig(o)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return badAddress("--listen", o.listen, err)
	}
	defer l.Close()
	if err := p.serveScope(ctx, o, &c); err != nil {
		return err
	}
	fmt.Fprintln(p.out, serveURL(l.Addr(), o.listen, c.TLS != nil)) // the result of the command, also with --quiet
	p.warnServe(l.Addr(), c)
	p.limitMemory()
	return page.Serve(ctx, l, c)
}

// limitMemory makes a process that stays small: much of what it holds lasts, so that garbage of half as much is enough.
// Whoever sets GOGC or GOMEMLIMIT decides.
func (p *process) limitMemory() {
	const garbage, limit = 40, 200 << 20
	if p.environ.value("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if p.environ.value("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}

func (p *process) serveConfig(o serveOptions) (c page.Config, err error) {
	c.Roots, c.Stacks, c.Version, c.Log = o.roots, o.stacks, version().Version, p.log
	if root := p.environ.value("MUSTER_ROOT"); len(o.roots) == 0 && root != "" {
		c.Roots = []string{root}
	}
	for _, root := range c.Roots {
		if err := resource.CheckRoot(root); err != nil {
			return c, badRoot(root, err)
		}
	}
	if err := checkStacks(o.stacks); err != nil {
		return c, err
	}
	if name, _, err := net.SplitHostPort(o.listen); err == nil && name != "" {
		c.Hosts = append(c.Hosts, strings.ToLower(name))
	}
	for _, name := range o.hosts {
		if name, err = hostName(name); err != nil {
			return c, err
		}
		c.Hosts = append(c.Hosts, name)
	}
	if c.TLS, err = p.listenTLS(o); err != nil {
		return c, err
	}
	c.Token, err = p.serveToken()
	return c, err
}

// serveScope adds to c what the configuration here says, once ZooKeeper has answered.
func (p *process) serveScope(ctx context.Context, o serveOptions, c *page.Config) error {
	return p.look(ctx, o.search, "", func(ctx context.Context, p *process, scope *searchScope, _ string) error {
		t := scope.target
		c.Connect = func(ctx context.Context) (*zkconn.Session, error) { return p.connect(ctx, t) }
		c.Redis = p.openLookout
		c.Servers, c.Home, c.Kinds = strings.Join(t.servers, ","), scope.home, kinds()
		p.warnStacks(ctx, scope.reader(), o.stacks)
		if scope.cfg != nil && len(c.Roots) == 0 && len(c.Stacks) == 0 {
			c.Stacks, c.Also = []string{scope.cfg.Stack}, scope.cfg.Searched()
		}
		if scope.cfg != nil {
			c.Configuration = p.followConfiguration(o.search)
		}
		return nil
	})
}

// followConfiguration returns a function that reads the configuration again if a file of it has another time or size
// than before; otherwise it returns nil. It does not look at what the configuration reads with file().
func (p *process) followConfiguration(f searchFlags) func() *page.Configuration {
	now, seen := page.Configuration{Command: p.paste("muster plan")}, ""
	return func() *page.Configuration {
		is := p.configurationFiles(f)
		if is == seen {
			return nil
		}
		seen = is
		cfg, diags, err := p.parse(f.config, f.vars, time.Time{})
		switch {
		case err != nil:
			now.Problem = err.Error()
		case diags.HasErrors():
			now.Problem = firstError(diags)
		default:
			now.Want, now.Roots, now.Problem = wantOf(cfg), cfg.Searched(), ""
		}
		next := now
		return &next
	}
}

// configurationFiles lists the files of a configuration, with their times and sizes.
func (p *process) configurationFiles(f searchFlags) string {
	dir := cmp.Or(p.path(p.configDir(f.config)), ".")
	entries, err := os.ReadDir(dir)
	all := fmt.Sprintln(err)
	note := func(name string) {
		info, err := os.Stat(name)
		if err == nil {
			all += fmt.Sprintln(name, info.Size(), info.ModTime().UnixNano())
		}
	}
	for _, e := range entries {
		if isConfigFile(e.Name()) {
			note(filepath.Join(dir, e.Name()))
		}
	}
	for _, v := range f.vars {
		if v.File != "" {
			note(p.path(v.File))
		}
	}
	return all
}

// firstError is the first error of a configuration in a line, without what it shows of the source.
func firstError(diags spec.Diagnostics) string {
	d := diags[slices.IndexFunc(diags, func(d spec.Diagnostic) bool { return d.Severity == spec.Error })]
	at := ""
	if d.Range != nil {
		at = fmt.Sprintf("%s:%d: ", d.Range.Filename, d.Range.Start.Line)
	}
	return fmt.Sprintf("%s%s (%s); muster validate says more", at, d.Summary, d.Code)
}

// warnStacks warns of stacks that are not there: one may come, but is rather misspelled.
func (p *process) warnStacks(ctx context.Context, r *zkstate.Reader, stacks []string) {
	there, err := r.Stacks(ctx)
	if err != nil {
		return // the page says what it cannot list
	}
	for _, stack := range stacks {
		if slices.Contains(there, stack) {
			continue
		}
		hint := "it is shown once something is applied"
		if near := text.Nearest(stack, there); near != "" {
			hint = "did you mean " + near + "?"
		}
		fmt.Fprintf(p.err, "muster: warning: there is no stack %s: %s\n", stack, hint)
	}
}

// hostName is a value of --allow-host as the Host header of a request has it, without the port.
func hostName(given string) (string, error) {
	isName := func(s string) bool {
		return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
	}
	name := strings.TrimSuffix(strings.ToLower(given), ".")
	if isName(name) {
		return name, nil
	}
	next := "--allow-host muster.example"
	_, rest, found := strings.Cut(name, "://")
	if !found {
		rest = name
	}
	if u, err := url.Parse("//" + rest); err == nil && isName(u.Hostname()) {
		next = "--allow-host " + u.Hostname()
	}
	return "", usagef(next, "--allow-host %q is not the name of a host", given)
}

// listenTLS returns nil without a certificate.
func (p *process) listenTLS(o serveOptions) (*tls.Config, error) {
	pairs, err := keyPair("the certificate of the page", p.pathIfAny(o.cert), p.pathIfAny(o.key),
		"give both --listen-cert and --listen-key")
	if pairs == nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: pairs}, nil
}

const minToken = 16

func newToken(name string) string { return "openssl rand -hex 32 > " + text.ShellWord(name) }

// serveToken reads the token of the page; empty if none is wanted. No message shows it.
func (p *process) serveToken() (string, error) {
	name := p.environ.value("MUSTER_SERVE_TOKEN_FILE")
	if name == "" {
		return "", nil
	}
	text, err := readBounded(p.path(name), maxCredentials)
	if err != nil {
		err = fmt.Errorf("MUSTER_SERVE_TOKEN_FILE: %w", err)
		return "", withRemedy(err, []remedy{{nil, newToken(name), errorSet{fs.ErrNotExist}}})
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || strings.ContainsAny(token, "\r\n") {
		return "", usagef(newToken(name),
			"%s does not hold one line of at least %d characters", name, minToken)
	}
	return token, nil
}

// warnServe warns when browsers will refuse the certificate, and when others can read what is served, or what is sent
// to them.
func (p *process) warnServe(at net.Addr, c page.Config) {
	if c.TLS != nil {
		leaf, now := c.TLS.Certificates[0].Leaf, time.Now()
		if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
			fmt.Fprintf(p.err, "muster: warning: browsers will refuse the certificate: it is valid from %s to %s\n",
				leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	tcp, ok := at.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return
	}
	if c.Token == "" {
		fmt.Fprintf(p.err, "muster: warning: everybody who reaches %s can read this: "+
			"put a token into a file, and name it in MUSTER_SERVE_TOKEN_FILE\n", at)
	}
	if c.TLS == nil {
		fmt.Fprintf(p.err, "muster: warning: what is sent from %s can be read on the way: "+
			"give --listen-cert and --listen-key, or put a proxy with TLS before it\n", at)
	}
}

// serveURL is the URL of the page. An address that stands for all of this machine is called localhost.
func serveURL(at net.Addr, listen string, secure bool) string {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	name, _, _ := net.SplitHostPort(listen)
	_, port, _ := net.SplitHostPort(at.String())
	if ip, err := netip.ParseAddr(name); name == "" || err == nil && ip.IsUnspecified() {
		name = "localhost"
	}
	return scheme + net.JoinHostPort(name, port) + "/"
}

// Limits of what the page shows of a queue.
const (
	maxShownDead  = 20   // tasks of a batch
	maxShownHands = 1000 // executors
)

// redisLookout tells the page how far the batches of a queue are.
type redisLookout struct {
	st       *store.Queue
	close    func()
	maxBytes int64
	dead     map[string]deadOfBatch // by batch, as they were read last
}

// deadOfBatch are the newest dead tasks of a batch, and its books at that time: without a change there are no others.
type deadOfBatch struct {
	books store.Batch
	tasks []page.DeadTask
}

func (p *process) openLookout(ctx context.Context, rec *resource.Record) (page.Lookout, error) {
	st, done, err := tasks.Look(ctx, rec, tasks.Access{Getenv: p.environ.value})
	if err != nil {
		return nil, err
	}
	return &redisLookout{st: st, close: done, maxBytes: int64(queue.Of(rec).MaxBytes)}, nil
}

func (l *redisLookout) Close() { l.close() }

func (l *redisLookout) Progress(ctx context.Context, one *page.Detail) (page.Progress, error) {
	var p page.Progress
	d := one.Queue
	rows := batchRows(d)
	known, err := countAll(ctx, l.st, l.maxBytes, rows)
	if err != nil {
		return p, err
	}
	process := map[string]string{} // by seat
	var executors []string
	for _, m := range d.Processes {
		if m.Seat == "" {
			continue
		}
		process[m.Seat] = m.Identity
		if m.Role == queue.Executor && len(executors) < maxShownHands {
			executors = append(executors, m.Seat)
		}
	}
	dead := make(map[string]deadOfBatch, len(l.dead))
	for _, row := range rows {
		books := known[row.ID]
		p.Batches = append(p.Batches, page.BatchProgress{BatchRow: row, Watcher: process[books.Holder]})
		if books.Dead > 0 {
			if dead[row.ID], err = l.readDead(ctx, books); err != nil {
				return p, err
			}
			p.Dead = append(p.Dead, dead[row.ID].tasks...)
		}
	}
	l.dead = dead
	if b := one.Batch; b != nil && b.How != "" && b.Dead > 0 { // how many are left is not known
		ended, err := l.readDead(ctx, store.Batch{ID: b.ID, Dead: b.Dead})
		if err == nil && len(ended.tasks) == 0 { // some were dropped
			ended, err = l.readDead(ctx, store.Batch{ID: b.ID})
		}
		if err != nil {
			return p, err
		}
		p.Dead = append(p.Dead, ended.tasks...)
	}
	slices.SortStableFunc(p.Dead, func(a, b page.DeadTask) int { return b.Died.Compare(a.Died) })
	hands, err := l.st.Hands(ctx, executors)
	for _, seat := range executors {
		for _, batch := range slices.Sorted(maps.Keys(hands[seat])) {
			p.Hands = append(p.Hands, page.Hand{Process: process[seat], Batch: batch, Tasks: hands[seat][batch]})
		}
	}
	return p, err
}

func (l *redisLookout) Sample(ctx context.Context) (s page.QueueSample, err error) {
	books, err := l.st.Books(ctx)
	if err != nil {
		return s, err
	}
	dead, err := l.st.CountDead(ctx)
	return page.QueueSample{At: books.Now, Ended: books.Finished, Dead: dead}, err
}

// readDead reads the newest dead tasks of a batch if its books have changed.
func (l *redisLookout) readDead(ctx context.Context, books store.Batch) (deadOfBatch, error) {
	if last, ok := l.dead[books.ID]; ok && last.books == books {
		return last, nil
	}
	all, err := l.st.DeadTasks(ctx, books.ID, max(0, books.Dead-maxShownDead))
	if err != nil {
		return deadOfBatch{}, err
	}
	now := deadOfBatch{books: books}
	for _, d := range slices.Backward(all[max(0, len(all)-maxShownDead):]) { // more than asked for may have come
		now.tasks = append(now.tasks, page.DeadTask{
			Batch: books.ID, Index: d.Index, Attempt: d.Attempt, Deaths: d.Deaths, Died: d.Died,
			Reason:  string(tasks.DecodeAnswer([]byte(d.Reason)).Body),
			Payload: string(d.Payload[:min(len(d.Payload), maxShownTask)]),
		})
	}
	return now, nil
}
