package resource

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, which JSON and HCL write as a whole number and a unit: "256KiB". Two spellings of one size
// are equal.
type Size int64

// sizeUnit is a unit of sizes.
type sizeUnit struct {
	name  string
	bytes int64
}

// sizeUnits lists the units from the largest to the smallest.
func sizeUnits() []sizeUnit {
	return []sizeUnit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

// String uses the largest unit that divides the size: "1MiB", "1025B".
func (s Size) String() string {
	for _, u := range sizeUnits() {
		if int64(s)%u.bytes == 0 && (s != 0 || u.bytes == 1) {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return ""
}

// MarshalText writes the size with its unit.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a whole number and a unit.
func (s *Size) UnmarshalText(text []byte) error {
	for _, u := range sizeUnits() {
		number, ok := strings.CutSuffix(string(text), u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes || strconv.FormatInt(n, 10) != number {
			break
		}
		*s = Size(n * u.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size: write a whole number and a unit, such as 256KiB or 1GiB", text)
}
