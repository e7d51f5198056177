package page

import (
	"sync"
)

// cache keeps HTML by what it shows. It forgets what was not asked for while as much again was new.
type cache[K comparable] struct {
	lock     sync.Mutex
	now, old map[K]string
}

// maxCached is how many entries a cache has at most, twice.
const maxCached = 40_000

// html is what make makes for key.
func (c *cache[K]) html(key K, make func() string) string {
	c.lock.Lock()
	defer c.lock.Unlock()
	html, ok := c.now[key]
	if ok {
		return html
	}
	if html, ok = c.old[key]; !ok {
		html = make()
	}
	if c.now == nil || len(c.now) >= maxCached {
		c.old, c.now = c.now, map[K]string{}
	}
	c.now[key] = html
	return html
}
