package report

import (
	"muster/text"
)

// blocks writes a block for each item: a first line, and its fields below. The columns are as wide as the widest
// address and title, up to a limit.
func (p *page) blocks(items []item) {
	const widestAddress, widestTitle = 40, 36
	address, title := 0, 0
	for _, it := range items {
		address = max(address, min(text.Width(text.Escape(it.name())), widestAddress))
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

// columns are the columns of a block's first line, after the symbol at 0 and the address at 4.
type columns struct{ title, right int }

// head writes the symbol, the address and the title, and behind them the place of the declaration. If the place does
// not fit, it has a line of its own.
func (p *page) head(it item, at columns) {
	p.symbol(it.symbol)
	p.moveTo(4)
	p.write(bold, it.name())
	p.write(plain, "  ")
	p.moveTo(at.title)
	p.wrap(plain, it.title, at.title+2)
	right := it.place()
	switch start := max(at.right, p.col+2); {
	case right == "":
	case start+text.Width(text.Escape(right)) > p.width:
		p.newline()
		p.moveTo(6)
	default:
		p.moveTo(start)
	}
	p.write(plain, right)
	p.newline()
}

// symbol writes a symbol in its colour; a replace has two.
func (p *page) symbol(symbol string) {
	switch symbol {
	case "+":
		p.write(green, symbol)
	case "-":
		p.write(red, symbol)
	case "-/+":
		p.write(red, "-")
		p.write(plain, "/")
		p.write(green, "+")
	case "?":
		p.write(cyan, symbol)
	default:
		p.write(yellow, symbol)
	}
}
