// What is in the page and is not its own, one line each: elements, attributes, links and scripts that came out of a name.
(() => {
	const found = []
	if (typeof hacked !== "undefined") found.push("a script was run")
	for (const e of document.querySelectorAll("*")) {
		for (const a of e.attributes) {
			if (/^on|^style$|^srcdoc$|^formaction$/i.test(a.name)) found.push(e.tagName + " has " + a.name)
			if (/^(src|href|action)$/i.test(a.name) && !/^[/#]/.test(a.value) &&
				!(e.tagName === "A" && /^https?:\/\//.test(a.value) && /noopener/.test(e.rel)))
				found.push(e.tagName + " " + a.name + " is " + a.value)
			if (/^(src|href|action)$/i.test(a.name) && /^\/[/\\]/.test(a.value)) found.push("another host: " + a.value)
		}
		if (e.matches("svg") && !e.matches(".shape, .meter, .chart svg")) found.push("a drawing")
		if (/^(iframe|object|embed|base|style|template|math|video|audio|textarea|b:|x)$/i.test(e.tagName))
			found.push("an element " + e.tagName)
	}
	for (const e of document.querySelectorAll("script"))
		if (e.getAttribute("src") !== "/assets/page.js") found.push("a script")
	for (const e of document.querySelectorAll("img"))
		if (!e.getAttribute("src").startsWith("/assets/")) found.push("an image")
	return found
})()
