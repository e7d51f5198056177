package report

import (
	"muster/text"
)

// blocks writes one block an item: a head, and its fields below. The columns are as wide as the widest address and
// title, within bounds.
func (p *page) blocks(items []item) {
	const widestAddress, widestTitle = 40, 36
	address, title := 0, 0
	for _, it := range items {
		address = max(address, min(text.Width(text.Escape(it.row.Address())), widestAddress))
		title = max(title, min(text.Width(text.Escape(it.title)), widestTitle))
	}
	columns := columns{title: 4 + address + 2}
	columns.right = columns.title + title + 2
	for _, it := range items {
		p.head(it, columns)
		p.fields(it.fields)
		p.newline()
	}
}

// columns of a block's first line; symbol and address have theirs at 0 and 4.
type columns struct{ title, right int }

// head writes symbol, address, title and, where it fits beside them, the place of the declaration.
func (p *page) head(it item, at columns) {
	p.symbol(it.symbol)
	p.to(4)
	p.write(bold, it.row.Address())
	p.write(plain, "  ")
	p.to(at.title)
	p.wrap(plain, it.title, at.title+2)
	right := it.place()
	switch start := max(at.right, p.col+2); {
	case right == "":
	case start+text.Width(text.Escape(right)) > p.width:
		p.newline()
		p.to(6)
	default:
		p.to(start)
	}
	p.write(plain, right)
	p.newline()
}

// symbol writes a mark in its colour; both halves of a replace have their own.
func (p *page) symbol(mark string) {
	switch mark {
	case "+":
		p.write(green, mark)
	case "-":
		p.write(red, mark)
	case "-/+":
		p.write(red, "-")
		p.write(plain, "/")
		p.write(green, "+")
	case "?":
		p.write(cyan, mark)
	default:
		p.write(yellow, mark)
	}
}
