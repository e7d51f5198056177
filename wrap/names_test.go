package wrap

import (
	"reflect"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestWhoeverReadsAFieldCanNameItsType: a program that asks for a kind or a stage has to be able to write it down.
func TestWhoeverReadsAFieldCanNameItsType(t *testing.T) {
	for _, v := range []any{Config{}, Ending{}, Self{}, Members{}, Wait{}, Barrier{}, Refusal{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(v)) {
			typ := field.Type
			for typ.Name() == "" && (typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Chan) {
				typ = typ.Elem()
			}
			first, _ := utf8.DecodeRuneInString(typ.Name())
			if typ.PkgPath() != "" && field.IsExported() && !unicode.IsUpper(first) {
				t.Errorf("%T.%s is a %s", v, field.Name, typ)
			}
		}
	}
}
