// Figures of runs.
import type { Run, TaskResult } from './api'

/** Returns how many rows a task has deleted, updated and restored. */
export const rowsOf = (result: Pick<TaskResult, 'rowsDeleted' | 'rowsUpdated' | 'rowsRestored'>) =>
  Number(result.rowsDeleted ?? 0) + Number(result.rowsUpdated ?? 0) + Number(result.rowsRestored ?? 0)
/** Whether a run brings back what another one has deleted. */
export const isRestore = (run: Run) => (run.restoredRunId ?? '') !== ''
/** Returns how many rows a run has deleted, a dry run would delete, or a restore has brought back. */
export const total = (run: Run) =>
  (run.results ?? []).reduce((n, r) => n + Number((isRestore(run) ? r.rowsRestored : r.rowsDeleted) ?? 0), 0)
export const ended = (run: Run) => run.endTime !== undefined && run.endTime !== null
/** Returns the duration of a run in seconds, or 0 if it has not started or not ended. */
export const durationOf = (run: Run) =>
  run.startTime && run.endTime ? (Date.parse(run.endTime) - Date.parse(run.startTime)) / 1000 : 0

/** Returns the state to show. */
export const stateOf = (run: Run) => (run.interrupted ? 'INTERRUPTED' : run.state)
/** Whether an active run is paused. */
export const isPaused = (run: Run) => run.state === 'RUN_STATE_PAUSED'
/** Whether an active run gets on: it is neither queued nor paused, and a replica has it. */
export const works = (run: Run) => stateOf(run) === 'RUN_STATE_RUNNING'
/** Whether a paused run waits for a window of its schedule, and not for a person. */
export const awaitsWindow = (run: Run) => run.pausedBy === 'schedule'

export const paces = ['GENTLE', 'BALANCED', 'FAST'] as const
/** Returns the name of a pace; undefined if it is not set. */
export const paceOf = (pace?: string) => paces.find(name => pace === `PACE_${name}`)

/** Returns the seconds of a duration of the API, or 0 if it is not set. */
export const secondsOf = (duration?: string | null) => Number((duration ?? '0s').replace('s', ''))

/** Returns the name of a guard, a role or a type of credentials, as on the command line; empty if it is not set. */
export const nameOf = (value?: string) =>
  (value ?? '').replace(/^(GUARD_KIND|ROLE|CREDENTIAL_TYPE)_(UNSPECIFIED)?/, '').toLowerCase()

export type Space = { table: string; deleted: number; before: number; after: number; reusable: number }

/** Returns the space of each table before its first task and after its last, the most deleted rows first. */
export function spaceOf(run: Run): Space[] {
  const tables = new Map<string, Space>()
  for (const s of (run.results ?? []).flatMap(r => r.space ?? [])) {
    const table = s.table ?? '',
      known = tables.get(table)
    tables.set(table, {
      table,
      deleted: (known?.deleted ?? 0) + Number(s.rowsDeleted),
      before: known?.before ?? Number(s.tableBytesBefore) + Number(s.indexBytesBefore),
      after: Number(s.tableBytesAfter) + Number(s.indexBytesAfter),
      reusable: Number(s.deadBytes ?? 0) + Number(s.freeBytes ?? 0),
    })
  }
  return [...tables.values()].filter(s => s.deleted > 0 || s.after !== s.before).sort((a, b) => b.deleted - a.deleted)
}
