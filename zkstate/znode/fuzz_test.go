package znode

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/resource"
	"muster/resource/job"
)

// Every value that a decoder accepts can be encoded, and the result decodes to the same value.

// rewritten is a body that was decoded and encoded again.
func rewritten[T any, P body[T]](data []byte) ([]byte, error) {
	v, err := Decode[T, P](data)
	if err != nil {
		return nil, err
	}
	return Encode[T, P](v)
}

// isWrittenAndRead checks the JSON of a body, and that reading it loses nothing.
func isWrittenAndRead[T any, P body[T]](t *testing.T, want string, v T) {
	t.Helper()
	got, err := Encode[T, P](v)
	again, bad := rewritten[T, P](got)
	if err != nil || bad != nil || string(got) != want || string(again) != want {
		t.Errorf("written %v, read %v\n%s\nand again\n%s\nwant\n%s", err, bad, got, again, want)
	}
}

// isDamaged checks what is said of bodies.
func isDamaged[T any, P body[T]](t *testing.T, says map[string]string) {
	t.Helper()
	for body, want := range says {
		if _, err := Decode[T, P]([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: error %v, want one with %q", body, err, want)
		}
	}
}

func fuzzBody[T any, P body[T]](f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		once, err := rewritten[T, P](data)
		if _, unread := Decode[T, P](data); unread != nil || len(data) > mostOf(P(new(T)))/8 {
			return // what is escaped may be longer than the input
		}
		twice, bad := rewritten[T, P](once)
		if err != nil || bad != nil || string(once) != string(twice) {
			t.Errorf("%s becomes %s, %v, %v", once, twice, err, bad)
		}
	})
}

func FuzzDecodeWorker(f *testing.F) {
	for _, s := range []string{
		"", vector, "08ffffffffffffffffff01", "0801 1201 61 1801 2209 0a01 62 1201 63 1a01 64 3206 0a02 7570 1002",
		"2a02 1008",
	} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := DecodeWorker(data)
		if err != nil || len(data) > maxWorker/4 { // an encoded map entry may be longer than the input
			return
		}
		again, err := EncodeWorker(w)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeWorker(again)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(w, back); d != "" {
			t.Errorf("worker (-first +again):\n%s", d)
		}
	})
}

func FuzzDecodeRoll(f *testing.F) {
	one, _ := hex.DecodeString("00000011" + vector)
	f.Add(one)
	f.Add(append(one, one...))
	f.Add(append(one, 0, 0, 1, 0, 8))
	for _, s := range []string{
		"", "\n", "\na,1,0;null,r,d\nb,2,-1;x", "a:1=0;b:2=1;", "\x00\x00\x00\x07STARTED", "a,1,2;b,c,d;e",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ws, problems := DecodeRoll(data)
		if len(problems) > maxOddities+1 {
			t.Errorf("%d problems", len(problems))
		}
		for _, p := range problems {
			if strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("a control character in problem %q", p)
			}
		}
		if len(ws) > 0 && len(data) < maxWorker/4 {
			format := job.Text
			if data[0] == 0 {
				format = job.Protobuf
			}
			checkRoll(t, format, ws)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(recordJSON))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(strings.Replace(recordJSON, `"acl":["world:anyone"]`, `"acl":[],"ACL":null,"mood":{}`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRecord(job.Kind(), data)
		if err != nil {
			if d := cmp.Diff(resource.Record{}, r, cmpopts.IgnoreUnexported(resource.Record{})); d != "" {
				t.Errorf("a record beside the error:\n%s", d)
			}
			return
		}
		if len(data) > maxJSON/8 { // escapes may be longer than the input
			return
		}
		again, err := EncodeRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeRecordAt(job.Kind(), r.Declaration.ID().Path(), again)
		if err != nil {
			t.Fatal(err)
		}
		if string(back.Body) != string(r.Body) {
			t.Errorf("the digest changed:\n%s", cmp.Diff(r, back, cmpopts.IgnoreUnexported(resource.Record{})))
		}
		twice, err := EncodeRecord(back)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(again), string(twice)); d != "" {
			t.Errorf("JSON (-once +twice):\n%s", d)
		}
	})
}

func FuzzDecodeClaim(f *testing.F) {
	f.Add([]byte(`{"nonce":"a1","lives":3,"state":"done","exit_code":0}`))
	f.Add([]byte(`{"nonce":"a1","lives":2,"state":"left","signal":"TERM","more":[]}`))
	fuzzBody[Claim](f)
}
