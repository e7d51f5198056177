package wrap

import (
	"reflect"
	"slices"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestTypesOfExportedFieldsAreExported: a program that reads a kind or a stage must be able to write down its type.
func TestTypesOfExportedFieldsAreExported(t *testing.T) {
	for _, v := range []any{
		Config{}, Result{}, Self{}, Members{}, Wait{}, Barrier{}, Refusal{}, StateKeys{}, Operations{}, OperationRun{},
		StepRun{}, UseOf{}, OpenOperation{}, RunOfOperation{}, Task{},
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(v)) {
			typ := field.Type
			holds := []reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Chan}
			for typ.Name() == "" && slices.Contains(holds, typ.Kind()) {
				typ = typ.Elem()
			}
			first, _ := utf8.DecodeRuneInString(typ.Name())
			if typ.PkgPath() != "" && field.IsExported() && !unicode.IsUpper(first) {
				t.Errorf("%T.%s is a %s", v, field.Name, typ)
			}
		}
	}
}
