package store

import (
	"sync"

	"github.com/redis/go-redis/v9"

	"muster/tasks/store/lua"
)

// scripts are the programs by name.
type scripts map[string]*redis.Script

// standard are the scripts of all queues.
var standard = sync.OnceValue(func() scripts { return loadScripts(lua.Clock()) })

// loadScripts makes the scripts with a part that defines now().
func loadScripts(clock string) scripts {
	all := scripts{}
	for name, text := range lua.Scripts(clock) {
		all[name] = redis.NewScript(text)
	}
	return all
}
