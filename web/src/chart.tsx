// Charts in SVG, which follow the page's colours, print well and work with screen readers. A chart library would be
// larger than the rest of the console.
import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'

const height = 160,
  left = 52,
  bottom = 18,
  top = 8

/** Returns the smallest round number that is at least n. */
function ceiling(n: number) {
  if (n <= 0) return 1
  const power = 10 ** Math.floor(Math.log10(n))
  return [1, 2, 5, 10].map(step => step * power).find(step => step >= n)!
}

/** Measures the width of a chart on the screen, so that its text keeps the page's font size. */
function useWidth() {
  const chart = useRef<SVGSVGElement>(null)
  const [width, setWidth] = useState(720)
  useLayoutEffect(() => {
    const sized = new ResizeObserver(entries => setWidth(Math.round(entries[0]!.contentRect.width) || 720))
    sized.observe(chart.current!)
    return () => sized.disconnect()
  }, [])
  return { chart, width }
}

/** Draws the grid and the labels of a chart. role is group if the chart contains links, and img otherwise. */
function Frame({
  size: { chart, width },
  label,
  role,
  most,
  show,
  children,
}: {
  size: ReturnType<typeof useWidth>
  label: string
  role: 'group' | 'img'
  most: number
  show: (n: number) => string
  children: ComponentChildren
}) {
  const inner = height - top - bottom
  return (
    <svg class="chart" ref={chart} height={height} viewBox={`0 0 ${width} ${height}`} role={role} aria-label={label}>
      {[0, 0.5, 1].map(part => {
        const y = top + inner * (1 - part)
        return (
          <g key={part}>
            <line class="grid" x1={left} x2={width} y1={y} y2={y} />
            <text x={left - 6} y={y + 4} text-anchor="end">
              {show(most * part)}
            </text>
          </g>
        )
      })}
      {children}
    </svg>
  )
}

export type Stack = {
  key: string
  title: string
  href?: string
  parts: number[]
  line: number
  failed: boolean
  tick?: string
}

/** Draws stacked bars, a line with its own scale, and a mark for each failed run. */
export function Bars({ label, stacks, show }: { label: string; stacks: Stack[]; show: (n: number) => string }) {
  const size = useWidth(),
    { width } = size
  const inner = height - top - bottom
  const most = ceiling(Math.max(...stacks.map(s => s.parts.reduce((a, b) => a + b, 0))))
  const longest = Math.max(1, ...stacks.map(s => s.line))
  const slot = (width - left) / Math.max(1, stacks.length)
  const x = (i: number) => left + slot * i
  return (
    <Frame size={size} label={label} role="group" most={most} show={show}>
      {stacks.map((s, i) => {
        let y = top + inner
        return (
          <g key={s.key}>
            {s.href && (
              <a href={s.href} aria-label={s.title}>
                <title>{s.title}</title>
                <rect class="slot" x={x(i)} y={top} width={slot} height={inner} />
                {s.parts.map((part, at) => {
                  const tall = (inner * part) / most
                  y -= tall
                  return (
                    part > 0 && (
                      <rect
                        key={at}
                        class={`part${at % 6}`}
                        x={x(i) + slot * 0.15}
                        y={y}
                        width={slot * 0.7}
                        height={tall}
                      />
                    )
                  )
                })}
                {s.failed && <path class="failed" d={`M${x(i) + slot / 2 - 4} ${top + inner - 2}l4 -8l4 8z`} />}
              </a>
            )}
            {s.tick && (
              <text x={Math.min(x(i) + slot / 2, width - 22)} y={height - 4} text-anchor="middle">
                {s.tick}
              </text>
            )}
          </g>
        )
      })}
      <polyline
        class="line"
        points={stacks
          .flatMap((s, i) => (s.href ? `${x(i) + slot / 2},${top + inner * (1 - (0.9 * s.line) / longest)}` : []))
          .join(' ')}
      />
    </Frame>
  )
}

/** Draws values as a line over a time, with the newest on the right. */
export function Line({
  label,
  values,
  from,
  to,
  show,
  tick,
}: {
  label: string
  values: number[]
  from: number
  to: number
  show: (n: number) => string
  tick: (at: number) => string
}) {
  const size = useWidth(),
    { width } = size
  const inner = height - top - bottom
  const most = ceiling(Math.max(...values))
  const step = (width - left) / values.length
  const points = values
    .map((v, i) => `${(left + step * (i + 0.5)).toFixed(1)},${(top + inner * (1 - v / most)).toFixed(1)}`)
    .join(' ')
  const ticks = Math.max(2, Math.floor((width - left) / 160))
  return (
    <Frame size={size} label={label} role="img" most={most} show={show}>
      <polygon class="area" points={`${left},${top + inner} ${points} ${width},${top + inner}`} />
      <polyline class="line" points={points} />
      {Array.from({ length: ticks }, (_, i) => i / (ticks - 1)).map(part => (
        <text
          key={part}
          x={left + (width - left) * part}
          y={height - 4}
          text-anchor={part === 0 ? 'start' : part === 1 ? 'end' : 'middle'}
        >
          {tick(from + (to - from) * part)}
        </text>
      ))}
    </Frame>
  )
}

/** Draws values over time as a small line: what they were at a time, they are until the next one. */
export function Spark({ label, points }: { label: string; points: { at: number; value: number }[] }) {
  const wide = 80,
    tall = 18
  const first = points[0]!.at,
    span = Math.max(1, points.at(-1)!.at - first)
  const least = Math.min(...points.map(p => p.value)),
    range = Math.max(...points.map(p => p.value)) - least
  const x = (at: number) => Math.round((wide * (at - first)) / span)
  const y = (value: number) => (range === 0 ? tall / 2 : Math.round(tall - 1 - ((tall - 2) * (value - least)) / range))
  const path = points.map((p, i) => (i === 0 ? `M0 ${y(p.value)}` : `H${x(p.at)}V${y(p.value)}`)).join('')
  return (
    <svg class="spark" width={wide} height={tall} viewBox={`0 0 ${wide} ${tall}`} role="img" aria-label={label}>
      <title>{label}</title>
      <path d={path} />
    </svg>
  )
}
