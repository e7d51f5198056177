package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"muster/text"
	"muster/worker"
	"muster/wrap"
	"muster/zkstate/znode"
)

// inside returns a client of the worker or member whose command runs this process. of and start say what that is.
func (p *process) inside(command, of, start string) (*wrap.Client, error) {
	socket := p.environ.value(wrap.SocketVariable)
	if socket == "" {
		return nil, usagef(start, "muster %s works inside a %s's command, and there is no %s here", command, of,
			wrap.SocketVariable)
	}
	return wrap.NewClient(socket), nil
}

// askWorker calls ask with a client of the worker whose command runs this process, and explains its answer.
func (p *process) askWorker(command string, ask func(*wrap.Client) error) error {
	c, err := p.inside(command, "worker", "muster worker --job NAME -- COMMAND")
	if err != nil {
		return err
	}
	return workerError(command, ask(c))
}

func workerError(command string, err error) error {
	late := "check the worker's connection to ZooKeeper and ask again"
	if command == "barrier" {
		late += ", with --round, for an arrival stands"
	}
	return withRemedy(err, []remedy{
		{nil, "keep it elsewhere, and publish where it is", errorSet{worker.ErrDataFull}},
		{nil, "muster members --live shows who is there; ask again, or raise --timeout",
			errorSet{new(*worker.UnpublishedError)}},
		{errUsage, "muster " + command + " --help", errorSet{wrap.ErrRequest}},
		{nil, late, errorSet{wrap.ErrLate}},
		{
			nil, "inside a worker's command: the worker has ended, and its own last line says why; " +
				"anywhere else: muster status", errorSet{wrap.ErrUnavailable},
		},
	})
}

func newAdvertiseCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "advertise HOST:PORT",
		Short: "Inside a worker's command: tell the others another address",
		Long: `Says at which address the other workers reach this one from now on, for a
command that chooses its port when it runs. "muster members" shows it. HOST is
an IP, or a name that the others can resolve. What MASTER_ADDR and the roll say
does not change in commands that run already.`,
		Example: `  muster advertise "$(hostname -f):$port"`,
		Args:    argCount(1, 1, "an address, as HOST:PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, err := wrap.ParseAddress(args[0]); err != nil {
				return usagef("muster advertise 10.0.0.1:7000", "%w", err)
			}
			return p.askWorker("advertise", func(c *wrap.Client) error {
				return c.Advertise(cmd.Context(), wrap.Advertise{Address: args[0]})
			})
		},
	}
}

func newBarrierCmd(p *process) *cobra.Command {
	var round int
	var timeout time.Duration
	var b wrap.Barrier
	cmd := &cobra.Command{
		Use:   "barrier NAME",
		Short: "Inside a worker's command: wait until all workers are here",
		Long: `Returns when every worker of the job has come to the barrier of this name; with
exit code 71 when the round was aborted, for everybody, naming who is missing.
An abort is final, unless every worker gives --retry: then who comes again is at
the next attempt. The timeout has to be longer than a restart takes.
Each call is the next round; --round makes repeating it after a crash safe.`,
		Example: `  load && muster barrier loaded --round 1 && compute
  until muster barrier epoch --round 7 --timeout 5m --retry; do sleep 1; done`,
		Args: argCount(1, 1, "the name of a barrier"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := (worker.Barrier{Name: args[0], Round: &round}).Check(); err != nil {
				return usagef("muster barrier NAME --round 0", "%w", err)
			}
			if b.Name, b.Timeout = args[0], socketTimeout(timeout); cmd.Flags().Changed("round") {
				b.Round = &round
			}
			return p.askWorker("barrier", func(c *wrap.Client) error { return c.Barrier(cmd.Context(), b) })
		},
	}
	cmd.Flags().IntVar(&round, "round", 0, "round `N`: a number that only grows; default the next one")
	cmd.Flags().BoolVar(&b.Live, "live", false, "wait until all are here and alive at one moment")
	cmd.Flags().BoolVar(&b.Retry, "retry", false, "after an abort let all try again: say so at every call of NAME")
	cmd.Flags().DurationVar(&timeout, "timeout", 0,
		"abort the round for everybody after `DURATION`; default the job's barrier timeout")
	return cmd
}

func afterAbort(e *worker.AbortedError) string {
	switch start := e.Name == znode.StartBarrier; {
	case start && e.Retry:
		return "start the worker again, as the others are: all that are there at one time pass. " +
			"muster status {job} shows who is live"
	case start:
		return "make the job anew: muster terminate {job}, then muster apply"
	case e.Retry:
		return "call it again, as the others do; muster members --live shows who is here"
	}
	return "give a later --round, or let every worker give --retry at a barrier of another name; " +
		"muster members --live shows who is here"
}

type getOptions struct {
	from    int
	all     bool
	timeout time.Duration
	json    bool
}

func newGetCmd(p *process) *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "Inside a worker's command: wait for what a worker publishes",
		Long: `Waits until the worker has published the key, and writes the value as it is:
that of worker 0, of another with --from, or with --all those of all workers, a
line each: the id, a tab, and the value. Ends with 70 when the time is over,
naming who has not published it.

A value stays when its worker restarts. --json says in "life" which of the
worker's processes wrote it, from 1.`,
		Example: `  token=$(muster get token)
  muster get port --from 3 --timeout 5m
  muster get port --all | cut -f 2`,
		Args: argCount(1, 1, "a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.all && cmd.Flags().Changed("from") {
				return usagef("name one of them", "--from names one worker, and --all all of them")
			}
			if err := checkKey("muster get --help", args[0]); err != nil {
				return err
			}
			return p.askWorker("get", func(c *wrap.Client) error { return runGet(cmd.Context(), p, c, o, args[0]) })
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&o.from, "from", 0, "`ID` of the worker that publishes it")
	fs.BoolVar(&o.all, "all", false, "wait for all workers")
	fs.DurationVar(&o.timeout, "timeout", 0, "wait `DURATION`; default the job's barrier timeout")
	fs.BoolVar(&o.json, "json", false, "as JSON")
	return cmd
}

func runGet(ctx context.Context, p *process, c *wrap.Client, o getOptions, key string) error {
	g := wrap.Get{Key: key, Timeout: socketTimeout(o.timeout)}
	if !o.all {
		g.From = &o.from
	}
	found, err := c.Get(ctx, g)
	switch {
	case err != nil:
		return err
	case o.json:
		return p.printJSON(map[string]any{"values": publishedValues(found.Values)})
	case !o.all:
		_, err = p.out.Write(found.Values[0].Value)
		return err
	}
	for _, v := range found.Values {
		fmt.Fprintf(p.out, "%d\t%s\n", v.ID, text.Escape(string(v.Value)))
	}
	return nil
}

// publishedValue is one of the values that "muster get --json" prints, in Base64 if it is no text.
type publishedValue struct {
	ID     int     `json:"id"`
	Life   int     `json:"life"`
	Value  *string `json:"value,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

func publishedValues(all []worker.Published) []publishedValue {
	found := make([]publishedValue, 0, len(all))
	for _, v := range all {
		one := publishedValue{ID: v.ID, Life: v.Life, Base64: v.Value}
		if s := string(v.Value); utf8.ValidString(s) {
			one.Value, one.Base64 = &s, nil
		}
		found = append(found, one)
	}
	return found
}

type membersOptions struct{ live, self, json bool }

func newMembersCmd(p *process) *cobra.Command {
	var o membersOptions
	cmd := &cobra.Command{
		Use:   "members",
		Short: "Inside a worker's command: list the workers of its job",
		Long: `Lists the id and the address of everybody who has joined, or of who is live now,
in the order of the ids. With --self says which worker of which job this is.`,
		Example: `  muster members --live
  muster members --self
  muster members | awk '{print $2}'`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.self && o.live {
				return usagef("name one of them", "--live lists all that are live, and --self only this worker")
			}
			return p.askWorker("members", func(c *wrap.Client) error { return runMembers(cmd.Context(), p, c, o) })
		},
	}
	cmd.Flags().BoolVar(&o.live, "live", false, "only who is live now")
	cmd.Flags().BoolVar(&o.self, "self", false, "only which worker this is")
	cmd.Flags().BoolVar(&o.json, "json", false, "as JSON")
	return cmd
}

func runMembers(ctx context.Context, p *process, c *wrap.Client, o membersOptions) error {
	if o.self {
		return runSelf(ctx, p, c, o.json)
	}
	found, err := c.Members(ctx, o.live)
	if err != nil {
		return err
	}
	if o.json {
		return p.printJSON(found)
	}
	t := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, w := range found.Members {
		address := text.Escape(w.Address())
		if w.Problem != "" { // its id is known, and no more
			address = "?"
		}
		fmt.Fprintf(t, "%d\t%s", w.ID, address)
		if w.Identity != "" {
			fmt.Fprintf(t, "\t%s", text.Escape(w.Identity))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func runSelf(ctx context.Context, p *process, c *wrap.Client, asJSON bool) error {
	self, err := c.Self(ctx)
	switch {
	case err != nil:
		return err
	case asJSON:
		return p.printJSON(self)
	}
	me := text.Escape(self.Identity)
	fmt.Fprintf(p.out, "worker %d of %d of %s/%s: %s\n", self.ID, self.Workers, self.Root, self.Job, me)
	return nil
}

func newPublishCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "publish KEY [VALUE|-]",
		Short: "Inside a worker's command: leave a value for the others",
		Long: `Publishes a value of at most 64 KiB under a key of this worker, or standard
input. The other workers read it with "muster get". Publishing a key again
replaces its value. Values outlive the worker, and go with the run. Ends with 73
if there is no room for the value.`,
		Example: `  muster publish token "$(openssl rand -hex 16)"
  ./plan-shards | muster publish shards`,
		Args: argCount(1, 2, "a key, and a value"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkKey("muster publish --help", args[0]); err != nil {
				return err
			}
			return p.askWorker("publish", func(c *wrap.Client) error {
				return runPublish(cmd.Context(), p, c, args[0], args[1:])
			})
		},
	}
}

func runPublish(ctx context.Context, p *process, c *wrap.Client, key string, value []string) error {
	var body []byte
	var err error
	if len(value) == 1 && value[0] != "-" {
		body = []byte(value[0])
	} else if body, err = io.ReadAll(io.LimitReader(p.in, znode.MaxValue+1)); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	if err = worker.CheckValue(key, len(body)); err != nil {
		return err
	}
	return c.Publish(ctx, wrap.Publish{Key: key, Value: body})
}
