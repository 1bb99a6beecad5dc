// A run as its events tell it. Of its log there is a part, however many events there are: the newest lines at first, others on demand.
import type { Run, RunEvent, TaskResult } from './api'

/** How many events are loaded at a time, how many lines are kept, and how many rates. */
const page = 500,
  lines = 1000,
  samples = 600

/** A task as the events so far tell. */
type Live = { object?: string; expected?: number; rate: number; waits?: string }
type Entry = { sequence: number; at: string; level: string; task: string; message: string }
type Between = (after: number, upTo: number) => Promise<RunEvent[]>

const entriesOf = (events: RunEvent[]): Entry[] =>
  events.flatMap(({ sequence, time, log }) =>
    log
      ? [{ sequence: Number(sequence), at: time!, level: log.level!, task: log.task ?? '', message: log.message ?? '' }]
      : [],
  )

export class Model {
  live = new Map<string, Live>()
  rates: number[] = []
  /** The last event that is known. */
  last: number
  /** The lines of the events after first, up to upTo. */
  log: Entry[] = []
  first: number
  upTo: number
  /** How many events were seen, and the first of them. */
  seen = 0
  private oldest: number

  constructor(public run: Run) {
    this.last = Number(run.lastSequence)
    this.first = this.upTo = this.oldest = Math.max(0, this.last - page)
  }

  /** Loads the newest events from before the run was read, which say nothing new about its tasks. */
  async load(between: Between) {
    const events = await between(this.first, this.last)
    for (const event of events) this.sample(event)
    this.append(events, this.last)
    this.seen = events.length
  }

  private result(task: string): TaskResult {
    return this.run.results?.find(r => r.task === task) ?? {}
  }

  private sample({ taskProgress: p }: RunEvent) {
    if (!p) return
    this.rates = [...this.rates.slice(1 - samples), p.rowsPerSecond ?? 0]
    this.live.set(p.task!, {
      object: p.object,
      expected: p.rowsExpected === undefined || p.rowsExpected === null ? undefined : Number(p.rowsExpected),
      rate: p.rowsPerSecond ?? 0,
      waits: p.throttledBy,
    })
  }

  /** Takes the next event. Its line is not kept where earlier ones are looked at. */
  take(event: RunEvent) {
    const { runStarted, taskStarted, taskProgress: p, taskFinished, runFinished } = event
    if (this.upTo === this.last) this.append([event], Number(event.sequence))
    this.last = Number(event.sequence)
    this.seen++
    this.sample(event)
    if (runStarted?.run) this.run = { ...this.run, ...runStarted.run, lastSequence: this.run.lastSequence }
    if (runFinished?.run) this.run = { ...this.run, ...runFinished.run }
    if (taskStarted)
      Object.assign(this.result(taskStarted.task!), { state: 'TASK_STATE_RUNNING', startTime: event.time })
    if (p)
      Object.assign(this.result(p.task!), {
        state: 'TASK_STATE_RUNNING',
        rowsDeleted: p.rowsDeleted,
        rowsUpdated: p.rowsUpdated,
        tablesDropped: p.tablesDropped,
        batches: p.batches,
      })
    if (taskFinished?.result) Object.assign(this.result(taskFinished.result.task!), taskFinished.result)
  }

  private append(events: RunEvent[], upTo: number) {
    this.log = [...this.log, ...entriesOf(events)]
    this.upTo = upTo
    if (this.log.length > lines) {
      this.log = this.log.slice(-lines)
      this.first = this.log[0]!.sequence - 1
    }
  }

  /** Loads earlier events, until they have a line; the newest lines make room for theirs. */
  async earlier(between: Between) {
    for (let size = page, found = 0; found === 0 && this.first > 0; size *= 2) {
      const first = this.first,
        from = Math.max(0, first - size)
      const events = await between(from, first),
        entries = entriesOf(events)
      if (this.first !== first) continue // new lines have come, and those before them have gone
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

  /** Loads later events, until they have a line, or there is none any more. */
  async later(between: Between) {
    for (let size = page, found = 0; found === 0 && this.upTo < this.last; size *= 2) {
      const to = Math.min(this.last, this.upTo + size)
      const events = await between(this.upTo, to)
      found = entriesOf(events).length
      this.append(events, to)
    }
  }

  /** Forgets the events after one, which were lost. */
  rewind(after: number) {
    this.log = this.log.filter(e => e.sequence <= after)
    this.last = after
    this.upTo = Math.min(this.upTo, after)
    this.first = Math.min(this.first, after)
  }
}
