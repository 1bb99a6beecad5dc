// Builds dist/: one script, one chunk for each language, one style sheet, all named by a hash of their content.
import { build } from 'esbuild'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { basename } from 'node:path'

await rm('dist', { recursive: true, force: true })
const { metafile } = await build({
  entryPoints: ['src/main.tsx', 'src/style.css', 'src/icon.svg'],
  outdir: 'dist/assets',
  entryNames: '[name]-[hash]',
  chunkNames: '[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  metafile: true,
  jsx: 'automatic',
  jsxImportSource: 'preact',
  loader: { '.svg': 'copy' },
  legalComments: 'none',
  logLevel: 'warning',
})
const of = entry => basename(Object.entries(metafile.outputs).find(([, output]) => output.entryPoint === entry)[0])
await mkdir('dist', { recursive: true })
await writeFile(
  'dist/index.html',
  `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>cleanupd</title>
<link rel="icon" href="/assets/${of('src/icon.svg')}">
<link rel="stylesheet" href="/assets/${of('src/style.css')}">
<script type="module" src="/assets/${of('src/main.tsx')}"></script>
<body><div id="app"></div><noscript>The console of cleanupd needs JavaScript; the API at /v1/ does not.</noscript></body>
</html>
`,
)
