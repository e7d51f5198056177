package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/page"
	"muster/plan"
	"muster/reconcile"
	"muster/spec"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

type reconcileOptions struct {
	vars                 varFlags
	policy               policyFlags
	allow                []string
	rules                reconcile.Rules
	poll, every          time.Duration
	events, revisionFile string
	serve                serveOptions // listen, cert, key
}

func newReconcileCmd(p *process) *cobra.Command {
	var o reconcileOptions
	cmd := &cobra.Command{
		Use:   "reconcile [DIR | FILE]",
		Short: "Keep ZooKeeper as the files declare it",
		Long: `Plans and applies again and again: when a file changes, and when something in
ZooKeeper does. It makes the changes that --allow names, and shows the others,
with the command to type. What somebody has paused, terminated, or applied from
other files is left as it is. Of several that run for a stack one acts.`,
		Example: `  muster reconcile prod/
  muster reconcile prod/ --allow create,update,repair,replace --listen :8091
  muster reconcile --allow repair       beside a pipeline that applies`,
		Args:              argCount(0, 1, "one directory or file"),
		PersistentPreRunE: p.startLong,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runReconcile(cmd.Context(), p, o, firstArg(args))
		},
	}
	fs := cmd.Flags()
	o.vars.addTo(fs)
	o.policy.addTo(cmd)
	fs.StringSliceVar(&o.allow, "allow", text.Each(reconcile.DefaultAllow(), word), "make these changes: `LIST` of "+
		strings.Join(text.Each(reconcile.Words(), word), ", "))
	completeWith(cmd, "allow", text.Each(reconcile.Words(), word)...)
	fs.IntVar(&o.rules.MaxDelete, "max-delete", defaultMaxDelete, "delete nothing if it were more than `N` within an hour")
	fs.IntVar(&o.rules.MaxReplace, "max-replace", defaultMaxDelete,
		"replace and restart nothing if it were more than `N` within an hour")
	fs.DurationVar(&o.rules.RestartAfter, "restart-after", 10*time.Minute,
		"restart a job once nobody has been live for `DURATION`, or for timeouts.stale if that is longer")
	fs.DurationVar(&o.poll, "poll", 10*time.Second, "read the files each `DURATION`")
	fs.DurationVar(&o.every, "every", 5*time.Minute, "read all of ZooKeeper again each `DURATION`, and tidy up")
	fs.StringVar(&o.events, "events", "", "write what changes to `FILE`, one CloudEvent a line; - is standard output")
	fs.StringVar(&o.revisionFile, "revision-file", "", "the commit of the files, for the history, is in `FILE`")
	fs.StringVar(&o.serve.listen, "listen", "", "serve /healthz, /readyz and /metrics at `ADDR`; port 0 is a free port")
	fs.StringVar(&o.serve.cert, "listen-cert", "", "serve HTTPS with the certificate in `FILE`")
	fs.StringVar(&o.serve.key, "listen-key", "", "the key of --listen-cert is in `FILE`")
	cmd.ValidArgsFunction = completeConfig
	return cmd
}

func word(w reconcile.Word) string { return string(w) }

func (o *reconcileOptions) check() error {
	for _, name := range o.allow {
		if !slices.Contains(reconcile.Words(), reconcile.Word(name)) {
			return usagef("--allow "+strings.Join(text.Each(reconcile.Words(), word), ","),
				"--allow %q is none of its words", name)
		}
		o.rules.Allow = append(o.rules.Allow, reconcile.Word(name))
	}
	const most = 1000
	switch {
	case o.poll < 100*time.Millisecond || o.every < time.Second || o.rules.RestartAfter < 0:
		return usagef("muster reconcile --help", "--poll is at least 100ms, --every 1s, and no duration is negative")
	case min(o.rules.MaxDelete, o.rules.MaxReplace) < 0 || max(o.rules.MaxDelete, o.rules.MaxReplace) > most:
		return usagef("muster reconcile --help", "--max-delete and --max-replace are from 0 to %d", most)
	}
	return nil
}

func runReconcile(ctx context.Context, p *process, o reconcileOptions, dir string) error {
	if err := o.check(); err != nil {
		return err
	}
	cfg, err := p.load(dir, o.vars) // which stack it is
	if err != nil {
		return err
	}
	if _, err := p.policies(o.policy); err != nil {
		return err
	}
	t := p.target(p.declaredTarget(cfg, dir))
	if err := p.checkACL(t, cfg.ZooKeeper.ACL); err != nil {
		return err
	}
	events, done, err := p.openEvents(o.events, cfg.Stack)
	if err != nil {
		return err
	}
	defer done()
	c := reconcile.Config{
		Stack: cfg.Stack, Home: cfg.Home, Kinds: p.kinds(), Rules: o.rules, Poll: o.poll, Every: o.every,
		Patience: time.Minute,
		Load:     func() (*reconcile.Configuration, error) { return p.loadReconciled(dir, o, cfg) },
		Connect:  func(ctx context.Context) (*zkconn.Session, error) { return p.connect(ctx, t) },
		Open: func(s *zkconn.Session) (*zkstate.Store, error) {
			c := p.storeConfig(t, cfg.Home, cfg.Stack, cfg.ZooKeeper.ACL)
			c.Who, c.Version = p.environ.who(""), version().Version
			c.Who.Actor = "muster reconcile (" + p.user() + ")"
			return zkstate.NewStore(s, c)
		},
		Applying: func(pl plan.Plan) { p.redisHosts = redisHosts(pl) },
		Events:   events, Log: p.log,
	}
	r := reconcile.New(c)
	if o.serve.listen != "" {
		stop, err := p.serveReconciler(o.serve, r)
		if err != nil {
			return err
		}
		defer stop()
	}
	err = r.Run(ctx)
	if errors.Is(err, reconcile.ErrElsewhere) {
		return &problem{nil, err, "start muster reconcile again: its supervisor does that"}
	}
	return err
}

// loadReconciled reads the configuration, all of it below one directory, though a link that leads there may change
// meanwhile. first is the configuration with which the process began.
func (p *process) loadReconciled(
	dir string, o reconcileOptions, first *spec.Config,
) (*reconcile.Configuration, error) {
	at, err := filepath.EvalSymlinks(cmp.Or(p.path(dir), "."))
	if err == nil {
		at, err = filepath.Abs(at)
	}
	if err != nil {
		return nil, err
	}
	cfg, diags, err := p.parse(at, o.vars, time.Time{})
	switch {
	case err != nil:
		return nil, err
	case diags.HasErrors():
		return nil, errors.New(firstError(diags))
	case cfg.Stack != first.Stack || cfg.Home != first.Home ||
		!slices.Equal(cfg.ZooKeeper.Servers, first.ZooKeeper.Servers) ||
		!slices.Equal(cfg.ZooKeeper.ACL, first.ZooKeeper.ACL) || cfg.ZooKeeper.TLS != first.ZooKeeper.TLS ||
		cfg.ZooKeeper.SASL != first.ZooKeeper.SASL ||
		cfg.ZooKeeper.SessionTimeout != first.ZooKeeper.SessionTimeout:
		return nil, fmt.Errorf("%w: stack %s, home %s, and what its zookeeper block says", reconcile.ErrElsewhere,
			cfg.Stack, cfg.Home)
	}
	c := &reconcile.Configuration{
		Want: wantOf(cfg), Roots: cfg.Searched(), Digest: cfg.Digest, Commit: p.revision(o.revisionFile),
	}
	policies, diags, err := p.readPolicies(o.policy)
	if err != nil {
		return nil, err
	}
	if diags.HasErrors() {
		return nil, errors.New(firstError(diags))
	}
	if policies != nil {
		c.Policies = policies.Digest
		advised := map[string]bool{}
		c.Judge = func(pl plan.Plan) (string, map[string]string) {
			v := policies.Judge(pl, time.Now())
			for _, d := range v.Diagnostics {
				if d.Severity == spec.Warning && !advised[d.In+d.Summary] && len(advised) < maxAdvice {
					advised[d.In+d.Summary] = true
					p.log.Warn("a policy advises against a change", "policy", d.In, "says", d.Summary)
				}
			}
			return v.Denied, v.Rows
		}
	}
	return c, nil
}

// maxAdvice is how much advice of the policies is in the log for one reading of the files.
const maxAdvice = 100

// revision is the commit that a file names; empty if it cannot be read: the history says nothing then.
func (p *process) revision(file string) string {
	if file == "" {
		return ""
	}
	name, err := readBounded(p.path(file), 1<<10)
	if err != nil {
		p.log.Warn("the commit of the files is not known", "reason", err)
		return ""
	}
	return strings.TrimSpace(string(name))
}

// cloudEvent is an event as CloudEvents 1.0 has it.
type cloudEvent struct {
	SpecVersion string         `json:"specversion"`
	ID          string         `json:"id"`
	Source      string         `json:"source"`
	Type        string         `json:"type"`
	Time        time.Time      `json:"time"`
	Subject     string         `json:"subject"`
	ContentType string         `json:"datacontenttype"`
	Data        map[string]any `json:"data"`
}

// openEvents returns what writes events to a file, to which they are added. Who reads them may end: the reconciler goes
// on.
func (p *process) openEvents(name, stack string) (tell func(reconcile.Event), done func(), err error) {
	var to io.Writer
	closeFile := func() {}
	switch name {
	case "":
		return nil, closeFile, nil
	case "-":
		to = p.out
	default:
		f, err := os.OpenFile(p.path(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, closeFile, fmt.Errorf("--events: %w", err)
		}
		to, closeFile = f, func() { _ = f.Close() }
	}
	lines, written := make(chan []byte, maxEvents), make(chan struct{})
	go func() {
		defer close(written)
		for line := range lines {
			if _, err := to.Write(line); err != nil {
				p.log.Warn("an event is not written", "reason", err)
			}
		}
	}()
	tell = func(e reconcile.Event) {
		line, err := json.Marshal(cloudEvent{
			"1.0", zkstate.NewID(), "/muster/reconcile/" + stack, e.Type, time.Now().UTC(), e.Subject, "application/json",
			e.Data,
		})
		if err != nil {
			p.log.Warn("an event is not written", "type", e.Type, "reason", err)
			return
		}
		select {
		case lines <- append(line, '\n'):
		default:
			p.log.Warn("an event is not written: who reads them is too slow", "type", e.Type)
		}
	}
	return tell, func() {
		close(lines)
		select {
		case <-written:
		case <-time.After(eventsLimit):
		}
		closeFile()
	}, nil
}

// A reader of events who is too slow misses some: he must not keep the lock from other applies. At the end he has some
// seconds for the rest.
const maxEvents, eventsLimit = 20_000, 5 * time.Second

// serveReconciler serves how r stands until stop is called.
func (p *process) serveReconciler(o serveOptions, r *reconcile.Reconciler) (stop func(), err error) {
	token, err := p.serveToken()
	if err != nil {
		return nil, err
	}
	tls, err := p.listenTLS(o)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return nil, badAddress("--listen", o.listen, err)
	}
	p.warnServe(l.Addr(), page.Config{TLS: tls, Token: token})
	p.say("health is served at %s", serveURL(l.Addr(), o.listen, tls != nil))
	handler := r.Handler()
	web := &http.Server{
		TLSConfig: tls, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path == "/metrics" && !page.HasToken(q, token) {
				http.Error(w, "a token is needed, as a bearer token", http.StatusUnauthorized)
				return
			}
			handler.ServeHTTP(w, q)
		}),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if tls != nil {
			_ = web.ServeTLS(l, "", "")
		} else {
			_ = web.Serve(l)
		}
	}()
	return func() { _ = web.Close(); <-served }, nil
}
