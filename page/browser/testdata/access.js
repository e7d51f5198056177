// What a reader of the page could trip over, one line each: contrast of all text, names and order of things, what the
// Content-Security-Policy forbids. It is run in the page by a test.
(() => {
	const problems = []
	const say = (e, what) => {
		const id = e.id ? "#" + e.id : ""
		problems.push(e.tagName.toLowerCase() + id + "." + e.className + " \"" +
			(e.textContent || "").trim().slice(0, 40) + "\": " + what)
	}
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true })
	canvas.canvas.width = canvas.canvas.height = 1
	// rgba is a colour of any notation as [r, g, b, alpha].
	const cache = new Map()
	const rgba = color => {
		if (!cache.has(color)) {
			canvas.clearRect(0, 0, 1, 1)
			canvas.fillStyle = color
			canvas.fillRect(0, 0, 1, 1)
			const d = canvas.getImageData(0, 0, 1, 1).data
			cache.set(color, [d[0], d[1], d[2], d[3] / 255])
		}
		return cache.get(color)
	}
	const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1)
	const luminance = c => {
		const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		return 0.2126 * r + 0.7152 * g + 0.0722 * b
	}
	const contrast = (a, b) => {
		const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p)
		return (x + 0.05) / (y + 0.05)
	}
	const canvasColor = () => matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1]
	const background = e => {
		const layers = []
		for (; e; e = e.parentElement) {
			const style = getComputedStyle(e), c = rgba(style.backgroundColor)
			if (style.backgroundImage !== "none" && style.backgroundImage.includes("url")) return null
			layers.push(c)
			if (c[3] === 1) break
		}
		let below = e ? [0, 0, 0, 1] : canvasColor()
		for (const c of layers.reverse()) below = over(c, below)
		return below
	}
	const visible = e => e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
		e.getClientRects().length > 0
	const clipped = e => {
		const r = e.getBoundingClientRect()
		return r.width <= 1 || r.height <= 1
	}
	const seen = new Set()
	const readable = (e, color, what) => {
		const style = getComputedStyle(e), below = background(e)
		const key = [color, below, style.fontSize, style.fontWeight, e.className, what].join("|")
		if (!below || seen.has(key)) return
		seen.add(key)
		let opacity = 1
		for (let p = e; p; p = p.parentElement) opacity *= +getComputedStyle(p).opacity
		const c = rgba(color).slice()
		c[3] *= opacity
		const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && +style.fontWeight >= 700
		const have = contrast(over(c, below), below)
		if (have < (large ? 3 : 4.5)) say(e, what + " has a contrast of " + have.toFixed(2))
	}
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	for (let n = texts.nextNode(); n; n = texts.nextNode()) {
		const e = n.parentElement
		if (n.data.trim() && visible(e) && !clipped(e)) readable(e, getComputedStyle(e).color, "text")
	}
	for (const e of document.querySelectorAll("input, select, textarea, button")) {
		if (!visible(e)) continue
		readable(e, getComputedStyle(e).color, "a control")
		if (e.placeholder) readable(e, getComputedStyle(e, "::placeholder").color, "a placeholder")
		const r = (e.closest("label") || e).getBoundingClientRect()
		if (r.height < 24 || r.width < 24) say(e, "a control of " + r.width + " × " + r.height + " pixels")
	}
	const ids = new Map()
	for (const e of document.querySelectorAll("[id]")) {
		if (ids.has(e.id)) say(e, "a second element with this id")
		ids.set(e.id, e)
	}
	for (const name of ["aria-labelledby", "aria-describedby", "aria-controls", "aria-owns", "aria-activedescendant", "for"])
		for (const e of document.querySelectorAll("[" + name + "]"))
			for (const id of e.getAttribute(name).split(/\s+/).filter(Boolean))
				if (!ids.has(id)) say(e, name + " names " + id + ", which is not there")
	for (const e of document.querySelectorAll("a[href^='#']"))
		if (!ids.has(e.hash.slice(1))) say(e, "leads to nothing")
	if (document.documentElement.lang !== "en") say(document.documentElement, "no lang")
	if (!document.title.includes("muster")) say(document.documentElement, "its title is " + document.title)
	for (const [what, selector] of [["main", "main"], ["header", "body > header"], ["footer", "body > footer"], ["h1", "h1"]]) {
		const n = [...document.querySelectorAll(selector)].filter(visible).length
		if (n !== 1) say(document.body, n + " times " + what)
	}
	let level = 0
	for (const h of [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(visible)) {
		if (+h.tagName[1] > level + 1) say(h, "a heading of level " + h.tagName[1] + " after " + level)
		level = +h.tagName[1]
	}
	for (const e of document.querySelectorAll("nav, section, [role=region]"))
		if (!e.getAttribute("aria-label") && !e.getAttribute("aria-labelledby") && e.matches("nav, [role=region]"))
			say(e, "a region without a name")
	for (const e of document.querySelectorAll("img:not([alt])")) say(e, "no alt")
	for (const e of document.querySelectorAll("[tabindex]")) if (e.tabIndex > 0) say(e, "a tabindex above 0")
	for (const e of document.querySelectorAll("table:not([role=presentation])")) if (!e.querySelector("th")) say(e, "a table without headings")
	for (const e of document.querySelectorAll("li"))
		if (!e.parentElement.matches("ul, ol, menu")) say(e, "an item outside of a list")
	const viewport = document.querySelector("meta[name=viewport]")
	if (!viewport || /user-scalable\s*=\s*no|maximum-scale/.test(viewport.content)) say(document.body, "cannot be zoomed")
	for (const e of document.querySelectorAll("style, [style], script:not([src])")) say(e, "inline style or script")
	for (const e of document.querySelectorAll("*"))
		for (const a of e.attributes) if (/^on/.test(a.name)) say(e, "an attribute " + a.name)
	if (document.documentElement.scrollWidth > innerWidth)
		say(document.documentElement, "is " + document.documentElement.scrollWidth + " pixels wide, for " + innerWidth)
	return problems
})()
