// What the pages say of runs, in numbers.
import type { Run, TaskResult } from './api'

export const rowsOf = (result: TaskResult) => Number(result.rowsDeleted ?? 0) + Number(result.rowsUpdated ?? 0)
export const total = (run: Run) => (run.results ?? []).reduce((sum, result) => sum + rowsOf(result), 0)
export const ended = (run: Run) => run.endTime !== undefined && run.endTime !== null
/** How long a run took, in seconds; 0: it has not ended, or never began. */
export const took = (run: Run) =>
  run.startTime && run.endTime ? (Date.parse(run.endTime) - Date.parse(run.startTime)) / 1000 : 0

/** The seconds of a duration of the API; 0: there is none. */
export const secondsOf = (duration?: string | null) => Number((duration ?? '0s').replace('s', ''))
