// Package web holds the console, so that the program can serve it.
package web

import "embed"

// Dist is the console as it was built by make console: dist/index.html and dist/assets.
//
//go:embed dist
var Dist embed.FS
