// What the overview is made of: the runs that are judged, their warnings, and the runs of each day.
import { query, call, stream, ApiError, type Run, type RunEvent, type Schedule, type Task } from './api'
import { said, type Message } from './i18n'
import { ended, durationOf, isRestore, total } from './runs'

const dayLength = 86400_000
export const days = 30

/** Whether a run was a cleanup of all tasks that are enabled now: a task that was not selected has not begun. */
export function isWhole(run: Run, tasks: Task[]) {
  const enabled = new Set(tasks.filter(task => !task.disabled).map(task => task.name))
  if (isRestore(run)) return false
  return (run.results ?? []).every(r => r.state !== 'TASK_STATE_SKIPPED' || r.startTime || !enabled.has(r.task))
}

/** Returns the last run of the whole pipeline, and the last one that the schedule started if that is another. */
export function judgedRuns(runs: Run[], schedule: Schedule, tasks: Task[]) {
  const done = runs.filter(ended)
  const whole = done.find(run => isWhole(run, tasks)),
    scheduled = done.find(run => run.id === schedule.lastRunId)
  return { whole, judged: [...new Set([whole, scheduled])].filter(run => run !== undefined) }
}

/** Loads the runs of the last 30 days. */
export async function loadRuns(signal: AbortSignal) {
  const createdFromTime = new Date(Date.now() - days * dayLength).toISOString()
  const runs: Run[] = []
  for (let pageToken: string | undefined = ''; pageToken !== undefined;) {
    const page: { runs: Run[]; nextPageToken?: string } = await call(
      'GET',
      query('/v1/runs', { dryRun: false, createdFromTime, pageSize: 100, pageToken }),
      undefined,
      signal,
    )
    runs.push(...page.runs)
    pageToken = page.nextPageToken || undefined
  }
  return runs
}

/** Loads the warnings of a run that has ended, each text once. */
export async function loadWarnings(run: Run, signal: AbortSignal) {
  const texts = new Map<string, Message>()
  try {
    for await (const { event } of stream<{ event: RunEvent }>('GET', `/v1/runs/${run.id}/events`, undefined, signal)) {
      const { log } = event
      if (log?.level !== 'LOG_LEVEL_WARNING') continue
      const message = { code: log.code, params: log.params, text: log.message }
      texts.set(said(message).text, message)
    }
  } catch (error) {
    // The stream of a run that failed ends with an error.
    if (!(error instanceof ApiError) || error.status !== 200) throw error
  }
  return [...texts.values()]
}

export type Day = { at: Date; runs: Run[]; rows: number; duration: number }

/** Returns the last 30 days, oldest first, each with the cleanups that were requested on it. */
export function byDay(runs: Run[], now = new Date()): Day[] {
  return Array.from({ length: days }, (_, i) => {
    const at = new Date(now.getFullYear(), now.getMonth(), now.getDate() - days + 1 + i)
    const of = runs.filter(
      run => ended(run) && !isRestore(run) && new Date(run.createTime!).toDateString() === at.toDateString(),
    )
    return {
      at,
      runs: of,
      rows: of.reduce((n, run) => n + total(run), 0),
      duration: of.reduce((n, run) => n + durationOf(run), 0),
    }
  })
}
