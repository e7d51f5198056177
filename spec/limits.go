package spec

import (
	"cmp"
	"fmt"
	"runtime/metrics"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Limits that are the same on every machine. Those of time and memory are in Limits.
const (
	// MaxFile is how many bytes a file has at most: of configuration, of values, and what the function file reads.
	MaxFile = 2 << 20
	// maxDepth is how deeply brackets may be nested. The parser recurses as deeply.
	maxDepth = 1000
	// maxStack is by how many bytes the stacks of the process may grow. One that overflows, at four times that, ends the
	// process. The parser and the evaluation recurse as deeply as a text or a value is nested.
	maxStack = 128 << 20
)

// Limits are what Load may cost. A zero field stands for its default.
type Limits struct {
	Time   time.Duration // 30 s
	Memory int64         // bytes by which the heap of the process may grow, garbage included; 1 GiB
}

// limited does work and returns nil, or the finding that it exceeds a limit. Neither the parser nor the evaluation of
// HCL can be cancelled: past a limit the work goes on, with its memory. So a program ends with this finding.
func limited(limits Limits, work func()) Diagnostics {
	length, memory := cmp.Or(limits.Time, 30*time.Second), cmp.Or(limits.Memory, 1<<30)
	heapBefore, stackBefore := usage()
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	deadline := time.After(length)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for limit := ""; ; {
		select {
		case <-done:
			return nil
		case <-deadline:
			limit = length.String()
		case <-look.C:
			if heap, stack := usage(); heap-heapBefore > memory {
				limit = fmt.Sprintf("%d MiB of memory", memory>>20)
			} else if stack-stackBefore > maxStack {
				limit = fmt.Sprintf("%d MiB of stack", maxStack>>20)
			}
		}
		if limit != "" {
			return Diagnostics{{
				Severity: Error, Code: codeCost, Summary: "it takes more than " + limit + " to read this configuration",
				Help: "make what it builds smaller and less deep, or split it into several configurations",
			}}
		}
	}
}

// usage is the memory of the process, in bytes.
func usage() (heap, stack int64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
	}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64()), int64(samples[1].Value.Uint64())
}

// shallow checks that the brackets of a text are not nested too deeply. It counts quotes and the ${ of templates as
// brackets too. JSON has the same brackets as HCL. What is deep without brackets, such as - - - 1, is left to the limit
// of the stack.
func (f *findings) shallow(src []byte, name string) bool {
	depth := 0
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos) // the parser reports what is wrong
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote,
			hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote,
			hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
			depth = max(0, depth-1)
		}
		if depth > maxDepth {
			f.add(codeTooLarge, &t.Range, "brackets are nested deeper than %d", maxDepth)
			return false
		}
	}
	return true
}
