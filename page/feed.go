package page

import (
	"sync"
)

// feed is the newest value of something, and a way to wait for a newer one.
type feed[T any] struct {
	mu      sync.Mutex
	value   T
	set     bool
	changed chan struct{} // closed when value changes; nil before somebody has waited for that
}

// now returns the value, whether there is one yet, and a channel that is closed when there is another.
func (f *feed[T]) now() (value T, ok bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.value, f.set, f.changed
}

// put makes value the newest.
func (f *feed[T]) put(value T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.value, f.set = value, true
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}
