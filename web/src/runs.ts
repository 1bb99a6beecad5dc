// Figures of runs.
import type { Run, TaskResult } from './api'

export const rowsOf = (result: TaskResult) => Number(result.rowsDeleted ?? 0) + Number(result.rowsUpdated ?? 0)
export const total = (run: Run) => (run.results ?? []).reduce((sum, result) => sum + rowsOf(result), 0)
export const ended = (run: Run) => run.endTime !== undefined && run.endTime !== null
/** Returns the duration of a run in seconds, or 0 if it has not started or not ended. */
export const durationOf = (run: Run) =>
  run.startTime && run.endTime ? (Date.parse(run.endTime) - Date.parse(run.startTime)) / 1000 : 0

/** Returns the seconds of a duration of the API, or 0 if it is not set. */
export const secondsOf = (duration?: string | null) => Number((duration ?? '0s').replace('s', ''))

/** Returns the name of a guard, a role or a type of credentials, as on the command line; empty if it is not set. */
export const nameOf = (value?: string) =>
  (value ?? '').replace(/^(GUARD_KIND|ROLE|CREDENTIAL_TYPE)_(UNSPECIFIED)?/, '').toLowerCase()
