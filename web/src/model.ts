// The state of a run, built from its events. It keeps a part of the log: the newest lines first, others on demand.
import type { Run, RunEvent, TaskResult, Throttle } from './api'
import type { Message } from './i18n'
import type { Sample } from './rates'
import { rowsOf } from './runs'

/** The numbers of events loaded at a time, of log lines kept, and of samples of a task kept at most. */
const page = 500,
  lines = 1000,
  samples = 600

/** The progress of a running task. */
type Live = { object?: string; expected?: number; rate: number; waits?: Throttle; pace?: string }
type Entry = { sequence: number; at: string; level: string; task: string; message: Message }
type Between = (after: number, upTo: number) => Promise<RunEvent[]>

const entriesOf = (events: RunEvent[]): Entry[] =>
  events.flatMap(({ sequence, time, log }) =>
    log
      ? [
          {
            sequence: Number(sequence),
            at: time!,
            level: log.level!,
            task: log.task ?? '',
            message: { code: log.code, params: log.params, text: log.message },
          },
        ]
      : [],
  )

export class Model {
  live = new Map<string, Live>()
  /** How many rows each task had changed at some times. */
  samples = new Map<string, Sample[]>()
  /** The time of the last known event, in milliseconds. */
  now = 0
  /** The sequence number of the last known event. */
  last: number
  /** The log lines of the events after first, up to and including upTo. */
  log: Entry[] = []
  first: number
  upTo: number
  /** The number of events seen; oldest is where they begin. */
  seen = 0
  private oldest: number

  constructor(public run: Run) {
    this.last = Number(run.lastSequence)
    this.first = this.upTo = this.oldest = Math.max(0, this.last - page)
  }

  /** Loads the newest events that precede the loaded run. Their state of the tasks is already in the run. */
  async load(between: Between) {
    const events = await between(this.first, this.last)
    for (const event of events) this.sample(event)
    this.append(events, this.last)
    this.seen = events.length
  }

  private result(task: string): TaskResult {
    return this.run.results?.find(r => r.task === task) ?? {}
  }

  private sample({ time, taskProgress: p }: RunEvent) {
    this.now = Date.parse(time!)
    if (!p) return
    const taken = this.samples.get(p.task!) ?? []
    if (taken.length === samples)
      this.samples.set(
        p.task!,
        taken.filter((_, i) => i % 2 > 0),
      ) // half as often
    this.samples.set(p.task!, [...(this.samples.get(p.task!) ?? []), { at: this.now, rows: rowsOf(p) }])
    this.live.set(p.task!, {
      object: p.object,
      expected: p.rowsExpected === undefined || p.rowsExpected === null ? undefined : Number(p.rowsExpected),
      rate: p.rowsPerSecond ?? 0,
      waits: p.throttledBy ?? undefined,
      pace: p.pace,
    })
  }

  /** Applies the next event. Its log line is not appended while earlier lines are shown. */
  take(event: RunEvent) {
    const { runStarted, taskStarted, taskProgress: p, taskFinished, runFinished } = event
    if (this.upTo === this.last) this.append([event], Number(event.sequence))
    this.last = Number(event.sequence)
    this.seen++
    this.sample(event)
    this.run = { ...this.run, interrupted: false }
    if (runStarted?.run) this.run = { ...this.run, ...runStarted.run, lastSequence: this.run.lastSequence }
    if (runFinished?.run) this.run = { ...this.run, ...runFinished.run }
    this.control(event)
    if (taskStarted)
      Object.assign(this.result(taskStarted.task!), { state: 'TASK_STATE_RUNNING', startTime: event.time })
    if (p)
      Object.assign(this.result(p.task!), {
        state: 'TASK_STATE_RUNNING',
        rowsDeleted: p.rowsDeleted,
        rowsUpdated: p.rowsUpdated,
        rowsRestored: p.rowsRestored,
        tablesDropped: p.tablesDropped,
        partitionsRemoved: p.partitionsRemoved,
        batches: p.batches,
      })
    if (taskFinished?.result) Object.assign(this.result(taskFinished.result.task!), taskFinished.result)
  }

  /** Applies a message about the pause or the pace of the run, which have no other events. */
  private control({ time, log }: RunEvent) {
    const { code, params = {} } = log ?? {}
    if (code === 'RUN_PAUSED')
      this.run = {
        ...this.run,
        state: 'RUN_STATE_PAUSED',
        pauseTime: this.run.pauseTime ?? time,
        pausedBy: params.caller,
        windowOpenTime: undefined,
      }
    if (code === 'RUN_AWAITS_WINDOW')
      this.run = {
        ...this.run,
        state: 'RUN_STATE_PAUSED',
        pauseTime: this.run.pauseTime ?? time,
        pausedBy: 'schedule',
        windowOpenTime: params.time,
      }
    if (code === 'RUN_OVERTAKEN') this.run = { ...this.run, waitsForRunId: params.run }
    if (code === 'RUN_CONTINUED')
      this.run = {
        ...this.run,
        state: this.run.startTime ? 'RUN_STATE_RUNNING' : 'RUN_STATE_QUEUED',
        pauseTime: undefined,
        pausedBy: '',
        windowOpenTime: undefined,
        waitsForRunId: '',
      }
    if (code === 'PACE_CHANGED') this.run = { ...this.run, pace: `PACE_${params.pace}` as Run['pace'] }
  }

  /** Applies what the server says about the pause, the pace and the replica of the run, unless later events are known. */
  change({ state, interrupted, pace, pauseTime, pausedBy, windowOpenTime, waitsForRunId, lastSequence }: Run) {
    if (Number(lastSequence) >= this.last)
      this.run = { ...this.run, state, interrupted, pace, pauseTime, pausedBy, windowOpenTime, waitsForRunId }
  }

  private append(events: RunEvent[], upTo: number) {
    this.log = [...this.log, ...entriesOf(events)]
    this.upTo = upTo
    if (this.log.length > lines) {
      this.log = this.log.slice(-lines)
      this.first = this.log[0]!.sequence - 1
    }
  }

  /** Loads earlier events until one has a log line. The newest lines are removed if there are too many. */
  async earlier(between: Between) {
    for (let size = page, found = 0; found === 0 && this.first > 0; size *= 2) {
      const first = this.first,
        from = Math.max(0, first - size)
      const events = await between(from, first),
        entries = entriesOf(events)
      if (this.first !== first) continue // new lines have arrived and replaced the first ones
      found = entries.length
      if (from < this.oldest) this.seen += events.filter(e => Number(e.sequence) <= this.oldest).length
      this.oldest = Math.min(this.oldest, from)
      this.first = from
      this.log = [...entries, ...this.log]
    }
    if (this.log.length > lines) {
      this.log = this.log.slice(0, lines)
      this.upTo = this.log.at(-1)!.sequence
    }
  }

  /** Loads later events until one has a log line or the last event is reached. */
  async later(between: Between) {
    for (let size = page, found = 0; found === 0 && this.upTo < this.last; size *= 2) {
      const to = Math.min(this.last, this.upTo + size)
      const events = await between(this.upTo, to)
      found = entriesOf(events).length
      this.append(events, to)
    }
  }

  /** Removes the events after a sequence number, which were lost. */
  rewind(after: number) {
    this.log = this.log.filter(e => e.sequence <= after)
    this.last = after
    this.upTo = Math.min(this.upTo, after)
    this.first = Math.min(this.first, after)
  }
}
