package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// expression is a brace expression of a shell that stands for n paths.
type expression struct {
	text string
	n    int
}

// braceExpressions writes paths as brace expressions of a shell: /jobs/{nightly,tmp-{0001..0400}}. The paths of an
// expression have one parent. Each expression is short, so that a caller can leave out some of them.
func braceExpressions(paths []string) []expression {
	byFolder := map[string][]string{}
	for _, p := range paths {
		at := strings.LastIndexByte(p, '/') + 1
		byFolder[p[:at]] = append(byFolder[p[:at]], p[at:])
	}
	folders := make([]string, 0, len(byFolder))
	for f := range byFolder {
		folders = append(folders, f)
	}
	slices.Sort(folders)
	var all []expression
	for _, f := range folders {
		for rest := numberRanges(byFolder[f]); len(rest) > 0; {
			n := readableCount(rest)
			e := expression{}
			texts := make([]string, n)
			for i, c := range rest[:n] {
				texts[i] = c.text
				e.n += c.n
			}
			e.text = f + braced(texts)
			all = append(all, e)
			rest = rest[n:]
		}
	}
	return all
}

// readableCount is how many of the parts, at least one, make one readable expression.
func readableCount(parts []expression) int {
	const most, longest = 100, 4_000
	n, size := 1, len(parts[0].text)
	for n < min(len(parts), most) && size+len(parts[n].text) <= longest {
		size += len(parts[n].text)
		n++
	}
	return n
}

// pattern stands for names that differ only in one number with this many digits.
type pattern struct {
	before, after string
	digits        int
}

// patterns returns the patterns that fit name, one for each number in it, and these numbers.
func patterns(name string) (ps []pattern, numbers []int) {
	const longest = 9
	for i := 0; i < len(name); i++ {
		n := len(name[i:]) - len(strings.TrimLeft(name[i:], "0123456789"))
		if n == 0 {
			continue
		}
		if number, err := strconv.Atoi(name[i : i+n]); err == nil && n <= longest {
			ps = append(ps, pattern{name[:i], name[i+n:], n})
			numbers = append(numbers, number)
		}
		i += n
	}
	return ps, numbers
}

// numberRanges joins names with consecutive numbers, n{0001..0400}.eu, and returns all sorted. If a name has several
// numbers, it uses the pattern that fits most names.
func numberRanges(names []string) []expression {
	sizes := map[pattern]int{}
	for _, n := range names {
		ps, _ := patterns(n)
		for _, p := range ps {
			sizes[p]++
		}
	}
	var out []expression
	numbers := map[pattern][]int{}
	for _, n := range names {
		ps, values := patterns(n)
		best := -1
		for i, p := range ps {
			if best < 0 || sizes[p] >= sizes[ps[best]] {
				best = i
			}
		}
		if best < 0 {
			out = append(out, expression{n, 1})
			continue
		}
		numbers[ps[best]] = append(numbers[ps[best]], values[best])
	}
	for p, values := range numbers {
		slices.Sort(values)
		for len(values) > 0 {
			n := 1
			for n < len(values) && values[n] == values[0]+n {
				n++
			}
			middle := fmt.Sprintf("%0*d", p.digits, values[0])
			if n > 2 {
				middle = fmt.Sprintf("{%0*d..%0*d}", p.digits, values[0], p.digits, values[n-1])
			} else {
				n = 1
			}
			out = append(out, expression{p.before + middle + p.after, n})
			values = values[n:]
		}
	}
	slices.SortFunc(out, func(a, b expression) int { return strings.Compare(a.text, b.text) })
	return out
}

// braced is one expression for sorted texts: their common prefix, and the rest in braces. It does not split a range.
func braced(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	common := texts[0]
	for _, t := range texts[1:] {
		n := 0
		for n < min(len(common), len(t)) && common[n] == t[n] && t[n] != '{' {
			n++
		}
		common = common[:n]
	}
	var parts []string
	for start := 0; start < len(texts); {
		rest := texts[start][len(common):]
		end := start + 1
		for rest != "" && rest[0] != '{' && end < len(texts) && texts[end][len(common):][0] == rest[0] {
			end++
		}
		group := make([]string, end-start)
		for i := range group {
			group[i] = texts[start+i][len(common):]
		}
		part := strings.Join(group, ",")
		if factored := braced(group); len(factored) < len(part) {
			part = factored
		}
		parts = append(parts, part)
		start = end
	}
	return common + "{" + strings.Join(parts, ",") + "}"
}
