// Package recipes has worlds of recipes with known bugs, which the simulation must find. Tests only.
package recipes
