package tasks

import (
	"testing"
	"time"

	"muster/queue"
)

func TestJoinSaysHello(t *testing.T) {
	f := newFixture(t)
	e, w := f.join("e", queue.Executor), f.join("w", queue.Watcher)
	if !e.Ready() || !e.Connected() {
		t.Error("not ready")
	}
	books := f.books()
	if len(books.Seats) != 2 || books.Slots != 2 {
		t.Fatalf("books = %+v", books)
	}
	e.Wait(t.Context(), WakeExecutor, 10*time.Millisecond)
	if err := e.Leave(); err != nil {
		t.Fatal(err)
	}
	if books = f.books(); len(books.Seats) != 1 || books.Seats[0].Name != w.Seat {
		t.Errorf("after a leave: books = %+v", books)
	}
}
