// Package lua has the scripts that package store runs in Redis.
package lua

import (
	"embed"
	"strings"
)

//go:embed *.lua
var files embed.FS

// Clock is the part of a script that defines now().
func Clock() string { return text("clock") }

// Scripts are the texts of the scripts, by name. Each holds the parts that it shares with others. clock is one of
// these: it defines now(), and tests give another.
func Scripts(clock string) map[string]string {
	all := map[string]string{}
	for _, name := range []string{
		"hello", "evict", "begin", "append", "open", "turn", "sync", "claim", "unclaim", "set", "retry", "drop", "remove",
		"count",
	} {
		flags, body, _ := strings.Cut(text(name), "\n")
		parts := []string{flags, clock, text("common")}
		if name == "retry" || name == "drop" {
			parts = append(parts, text("dead"))
		}
		all[name] = strings.Join(append(parts, body), "\n")
	}
	return all
}

func text(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // the file is part of the program
	}
	return string(text)
}
