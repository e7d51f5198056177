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
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode[Claim](data)
		if err != nil || len(data) > maxJSON/8 {
			return
		}
		again, err := Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode[Claim](again)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c, back); d != "" {
			t.Errorf("claim (-first +again):\n%s", d)
		}
	})
}
