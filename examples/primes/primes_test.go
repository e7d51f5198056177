package main

import (
	"strings"
	"testing"
)

func TestAnswer(t *testing.T) {
	var out strings.Builder
	err := answer(strings.NewReader("0\n1\n2\n3\n4\n25\n4999\n1000003\nx\n7\n"), &out)
	want := "composite\ncomposite\nprime\nprime\ncomposite\ncomposite\nprime\nprime\n"
	if out.String() != want || err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("%v; answered:\n%s", err, out.String())
	}
}
