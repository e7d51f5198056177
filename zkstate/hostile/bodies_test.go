package hostile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/zkstate/znode"
)

// body is a body that somebody could write, and what it is.
type body struct {
	why  string
	body []byte
}

// parse is a JSON object; nil if data is none.
func parse(data []byte) map[string]any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v map[string]any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// encode is v as JSON. It sorts the keys.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // what was decoded can be encoded
	}
	return b
}

// leaves lists where there are values in an object, also those that are objects.
func leaves(v map[string]any, at ...string) [][]string {
	var all [][]string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		here := append(slices.Clone(at), key)
		all = append(all, here)
		if inner, ok := v[key].(map[string]any); ok {
			all = append(all, leaves(inner, here...)...)
		}
	}
	return all
}

func lookup(v map[string]any, at []string) any {
	for _, key := range at[:len(at)-1] {
		inner, ok := v[key].(map[string]any)
		if !ok {
			return nil
		}
		v = inner
	}
	return v[at[len(at)-1]]
}

// with is v with another value at a place; without one if it is nil.
func with(v map[string]any, at []string, value any) map[string]any {
	v = maps.Clone(v)
	if v == nil {
		v = map[string]any{}
	}
	if len(at) > 1 {
		inner, _ := v[at[0]].(map[string]any)
		v[at[0]] = with(inner, at[1:], value)
	} else if value == nil {
		delete(v, at[0])
	} else {
		v[at[0]] = value
	}
	return v
}

// mixtures are own with each value of other in its place, and other with each value of own.
func mixtures(own, other []byte) []body {
	a, b := parse(own), parse(other)
	if a == nil || b == nil {
		return nil
	}
	var all []body
	add := func(what string, v map[string]any, at []string, value any) {
		if !reflect.DeepEqual(lookup(v, at), value) {
			all = append(all, body{what + " " + strings.Join(at, "."), encode(with(v, at, value))})
		}
	}
	for _, at := range leaves(b) {
		add("its own with another's", a, at, lookup(b, at))
	}
	for _, at := range leaves(a) {
		add("another's with its own", b, at, lookup(a, at))
	}
	return all
}

// ruins are bodies of no kind.
func ruins() []body {
	deep := strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)
	return []body{
		{"empty", []byte{}}, {"null", []byte("null")}, {"a list", []byte("[]")}, {"an object", []byte("{}")},
		{"a number", []byte("-1")}, {"a huge number", []byte(strings.Repeat("9", 400))}, {"a string", []byte(`"x"`)},
		{"no text", []byte{0xff, 0xfe, 0, 1}}, {"deep", []byte(deep)},
		{"deep lists", []byte(strings.Repeat("[", 100_000))}, {"large", bytes.Repeat([]byte("x"), 900_000)},
		{"large JSON", encode(map[string]string{"x": strings.Repeat("x", 250_000)})},
		{"rows of nothing", make([]byte, 4_000)}, {"a long row", []byte{0x7f, 0xff, 0xff, 0xff, 1}},
	}
}

// mutations are own damaged in every way that decoders have to expect. trap is an address of the attacker.
func mutations(own []byte, trap string) []body {
	var all []body
	for i := 1; i < 8 && len(own) > 8; i++ {
		all = append(all, body{"cut", own[:len(own)*i/8]})
		flipped := bytes.Clone(own)
		flipped[len(own)*i/8] ^= 1 << i
		all = append(all, body{"a bit flipped", flipped})
	}
	v := parse(own)
	if v == nil {
		return all
	}
	twice := append(bytes.TrimSuffix(encode(v), []byte("}")), ',')
	all = append(all, body{"every key twice", append(twice, encode(v)[1:]...)})
	strange := []any{
		json.Number("-1"), json.Number("0"), json.Number("2147483648"), json.Number("9223372036854775807"),
		json.Number("1e400"), "", "x", "/", "/../..", "..", "/zookeeper", "\x00\x1b[2J\u202e", strings.Repeat("x", 5_000),
		"redis://" + trap + "/0", "99999999h", "-1s", []any{}, []any{"x", map[string]any{}}, map[string]any{"x": "y"}, true,
		strings.Repeat("0", 32), []any{"/", "/jobs/.muster", "//", "/zookeeper", "x"},
	}
	for _, at := range leaves(v) {
		all = append(all, body{"without " + strings.Join(at, "."), encode(with(v, at, nil))})
		for _, s := range strange {
			all = append(all, body{fmt.Sprintf("%.40q as %s", s, strings.Join(at, ".")), encode(with(v, at, s))})
		}
	}
	return all
}

// withSignature is b, and if it is a record whose digest does not fit, b with one that fits.
func (b body) withSignature() []body {
	if signed := sign(b.body); signed != nil {
		return []body{b, {b.why + ", signed", signed}}
	}
	return []body{b}
}

// sign is a record with a digest that fits, as whoever writes one would compute it; nil if it is no record.
func sign(data []byte) []byte {
	if rec := recordIn(data); rec != nil && rec.Edited() {
		return edited(data)
	}
	return nil
}

// recordIn is the record that data holds; nil if it holds none.
func recordIn(data []byte) *resource.Record {
	for _, k := range []resource.Kind{job.Kind(), group.Kind(), queue.Kind()} {
		if rec, err := znode.DecodeRecord(k, data); err == nil {
			return &rec
		}
	}
	return nil
}

// edited is a record with changes and a digest that fits; nil if it cannot be encoded.
func edited(data []byte, edits ...func(*resource.Record)) []byte {
	rec := recordIn(data)
	for _, edit := range edits {
		edit(rec)
	}
	rec.Sign()
	body, err := znode.EncodeRecord(*rec)
	if err != nil {
		return nil
	}
	return body
}

// renamed declares something else.
func renamed(d resource.Declaration) func(*resource.Record) {
	return func(r *resource.Record) {
		if err := r.Declare(d); err != nil {
			panic(err)
		}
	}
}

// moved names another Redis.
func moved(addr string) func(*resource.Record) {
	return func(r *resource.Record) {
		q := queue.Of(r)
		q.Redis = "redis://" + addr + "/0"
		renamed(q)(r)
	}
}
