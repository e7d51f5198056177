package page

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/text"
)

// TestServeIsDocumented: docs/serve.md explains each metric, and no other; and it states the limits.
func TestServeIsDocumented(t *testing.T) {
	read := func(file string) string {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	doc := read("../docs/serve.md")
	name := regexp.MustCompile(`\bmuster_[a-z_]+[a-z]\b`)
	shown := name.FindAllString(doc, -1)
	made := name.FindAllString(read("metrics.go"), -1) // those of the server, and some of the board
	board, restarts := sample(), 1
	for i := range board.Resources {
		board.Resources[i].Restarts = &restarts
	}
	for _, family := range gathered(t, board) {
		made = append(made, family.GetName())
	}
	if len(made) < 30 {
		t.Errorf("only these metrics were found: %q", made)
	}
	for _, metric := range made {
		if !slices.Contains(shown, metric) {
			t.Errorf("docs/serve.md does not explain %s", metric)
		}
	}
	for _, metric := range shown {
		if !slices.Contains(made, metric) {
			t.Errorf("docs/serve.md has %s, which is no metric", metric)
		}
	}
	for _, row := range []string{
		fmt.Sprintf("connections | %s;", text.Thousands(MaxConnections)),
		fmt.Sprintf("%d connections; %d pages that are open |", MaxFromAddress, MaxStreamsFromAddress),
		fmt.Sprintf("(streams) | %d |", MaxStreams),
		fmt.Sprintf("different pages | %d;", MaxViews),
		fmt.Sprintf("looked at | %d |", MaxDetails),
		fmt.Sprintf("slow reader | %.0f s for %d KiB;", writeTimeout.Seconds(), writeChunk>>10),
		fmt.Sprintf("lags behind | %d changes, %d MiB;", maxBehind, maxBehindBytes>>20),
		fmt.Sprintf("scrapes | %d; %d |", maxAnswers, maxScrapes),
		fmt.Sprintf("with its query | %d KiB; %d KiB |", maxHeader>>10, maxURL>>10),
		fmt.Sprintf("is drawn | %d times a second |", time.Second/renderEvery),
		fmt.Sprintf("more than %s |", text.Thousands(maxSeries)),
	} {
		if !strings.Contains(doc, row) {
			t.Errorf("docs/serve.md does not say %q", row)
		}
	}
}
