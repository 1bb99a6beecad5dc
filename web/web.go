// Package web embeds the built console. Package transport serves it.
package web

import "embed"

// Dist contains the files that make console builds: dist/index.html and dist/assets.
//
//go:embed dist
var Dist embed.FS
