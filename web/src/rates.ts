// How fast a run deletes and updates rows, over its time.
import type { Run } from './api'
import { rowsOf } from './runs'

/** The rows of a task at a time, in milliseconds. */
export type Sample = { at: number; rows: number }

const parts = 60

/**
 * Returns the rows per second in equal parts of a run's time; nothing if it has no rows. Each row counts: between two
 * samples of its task, or between the begin and the end of a task without samples.
 */
export function ratesOf(run: Run, samples: Map<string, Sample[]>, now: number) {
  const from = Date.parse(run.startTime ?? ''),
    to = run.endTime ? Date.parse(run.endTime) : now
  if (!(to > from)) return undefined
  const width = (to - from) / parts
  const rows = new Array<number>(parts).fill(0)
  for (const r of run.results ?? []) {
    if (!r.startTime || rowsOf(r) === 0) continue
    let before: Sample = { at: Date.parse(r.startTime), rows: 0 }
    for (const sample of [
      ...(samples.get(r.task!) ?? []),
      { at: r.endTime ? Date.parse(r.endTime) : to, rows: rowsOf(r) },
    ]) {
      const time = Math.max(1, sample.at - before.at)
      for (let i = 0; i < parts; i++) {
        const start = from + width * i
        const overlap = Math.min(start + width, before.at + time) - Math.max(start, before.at)
        if (overlap > 0) rows[i]! += ((sample.rows - before.rows) * overlap) / time
      }
      before = sample
    }
  }
  return rows.some(n => n > 0) ? { values: rows.map(n => Math.max(0, (n * 1000) / width)), from, to } : undefined
}
