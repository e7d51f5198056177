package store

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// scripts are the programs by name.
type scripts map[string]*redis.Script

// loadScripts puts the shared parts into each script. clock is the program text that defines now().
func loadScripts(clock string) scripts {
	all := scripts{}
	for _, name := range []string{
		"hello", "evict", "begin", "append", "open", "turn", "sync", "claim", "unclaim", "set", "retry", "drop", "remove",
		"count",
	} {
		flags, body, _ := strings.Cut(luaText(name), "\n")
		parts := []string{flags, clock, luaText("common")}
		if name == "retry" || name == "drop" {
			parts = append(parts, luaText("dead"))
		}
		all[name] = redis.NewScript(strings.Join(append(parts, body), "\n"))
	}
	return all
}

// Scripts are the names of the scripts by the SHA1 of their text, by which EVALSHA names them.
func Scripts() map[string]string { return loadScripts(luaText("clock")).names() }

func (s scripts) names() map[string]string {
	names := map[string]string{}
	for name, script := range s {
		names[script.Hash()] = name
	}
	return names
}

func luaText(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // the file is part of the program
	}
	return string(text)
}
