package store

import (
	"encoding/json"
	"errors"
	"testing"
)

// tree makes of bytes what the client library could make of a reply.
func tree(b []byte, depth int) (v any, rest []byte) {
	if len(b) == 0 {
		return nil, nil
	}
	kind, b := b[0], b[1:]
	take := func(n int) string {
		n = min(n, len(b))
		text := string(b[:n])
		b = b[n:]
		return text
	}
	switch kind % 8 {
	case 0:
		return nil, b
	case 1:
		return int64(kind>>3) - 1, b
	case 2:
		return []string{"0", "1", "-1", "x", "", "1e999", "NaN", "9223372036854775807", "e:1:2", "shut:1:e:1", "b", "held",
			"0:1:5:data", "0:1:0:9:1:rp", "0:1:0:9:9:rp", "0:1:0:9:-1:rp", "b:watch", "b:1", "../x"}[int(kind>>3)%19], b
	case 3:
		return take(int(kind >> 3)), b
	case 4:
		return errors.New("ERR"), b
	}
	all := []any{}
	for n := int(kind >> 3); n > 0 && depth < 4 && len(b) > 0; n-- {
		v, b = tree(b, depth+1)
		all = append(all, v)
	}
	return all, b
}

// FuzzParsers: a parser returns what fits, or ErrReply; JSON has it.
func FuzzParsers(f *testing.F) {
	f.Add([]byte{4<<3 | 5, 1, 1<<3 | 5, 2<<3 | 5, 9, 11<<3 | 2, 1<<3 | 5, 4<<3 | 5, 10<<3 | 2, 1, 17, 1<<3 | 5, 3, 1})
	f.Add([]byte{6<<3 | 5, 1, 10<<3 | 2, 2, 9, 9, 9})
	f.Add([]byte{2<<3 | 5, 12<<3 | 2, 13<<3 | 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, _ := tree(b, 0)
		turned, err := take(v, func(s *shape, v any) Turned { return parseTurn(s, v, 3) })
		check := func(v any, err error) {
			t.Helper()
			if err != nil {
				if !errors.Is(err, ErrReply) {
					t.Fatal(err)
				}
				return
			}
			if _, err := json.Marshal(v); err != nil {
				t.Fatal(err)
			}
		}
		check(turned, err)
		for _, r := range turned.Refused {
			if r.Result < 0 || r.Result >= 3 {
				t.Fatalf("%+v", r)
			}
		}
		for _, g := range turned.Granted {
			if g.Index < 0 || g.Attempt < 1 || len(g.Payloads) == 0 {
				t.Fatalf("%+v", g)
			}
		}
		got, err := take(v, parseClaim)
		check(got.got, err)
		has, err := take(v, parseSync)
		check(has.fields, err)
		books, err := take(v, parseBooks)
		check(books, err)
		for _, s := range books.Seats {
			if s.Slots < 0 || s.Seq < 0 {
				t.Fatalf("%+v", s)
			}
		}
		batches, err := take(v, listOf((*shape).books))
		check(batches, err)
		for _, b := range batches {
			if b.Tasks < 0 || b.Done < 0 || b.Dead < 0 || b.Out < 0 {
				t.Fatalf("%+v", b)
			}
		}
		hand, err := take(v, parseHand)
		check(hand, err)
		results, err := take(v, listOf(parseResult))
		check(results, err)
		dead, err := take(v, listOf(parseDead))
		check(dead, err)
	})
}

// listOf is the parser of a page.
func listOf[T any](parse func(*shape, any) T) func(*shape, any) []T {
	return func(s *shape, v any) []T {
		return each(s, v, MaxItems, func(v any) T { return parse(s, v) })
	}
}
