package cli

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"muster/text"
	"muster/worker"
	"muster/wrap"
)

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
		return p.printJSON(newPublishedValues(found.Values))
	case !o.all:
		_, err = p.out.Write(found.Values[0].Value)
		return err
	}
	for _, v := range found.Values {
		fmt.Fprintf(p.out, "%d\t%s\n", v.ID, text.Escape(string(v.Value)))
	}
	return nil
}

// publishedValues is what "muster get --json" prints.
type publishedValues struct {
	Values []publishedValue `json:"values"`
}

// publishedValue is one value, in Base64 if it is no text.
type publishedValue struct {
	ID     int     `json:"id"`
	Life   int     `json:"life"`
	Value  *string `json:"value,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

func newPublishedValues(all []worker.Published) publishedValues {
	found := publishedValues{[]publishedValue{}}
	for _, v := range all {
		one := publishedValue{ID: v.ID, Life: v.Life, Base64: v.Value}
		if s := string(v.Value); utf8.ValidString(s) {
			one.Value, one.Base64 = &s, nil
		}
		found.Values = append(found.Values, one)
	}
	return found
}
