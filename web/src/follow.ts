// Following a run: each event once, in order, whatever happens to the connection, and one stream for all tabs of the browser. The tab that
// holds the lock of the run reads the stream, and tells the others.
import { query, Refusal, stream, type RunEvent } from './api'

const silence = 10_000
const wait = (ms: number, signal: AbortSignal) =>
  new Promise<void>(resolve => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener(
      'abort',
      () => {
        clearTimeout(timer)
        resolve()
      },
      { once: true },
    )
  })

const path = (id: string, after: number, generation = '0') =>
  query(`/v1/runs/${id}/events`, { afterSequence: after, logGeneration: generation })
const sequenceOf = (event: RunEvent) => Number(event.sequence)

/** The events of a run after one, up to another one. */
export async function between(id: string, after: number, upTo: number, signal?: AbortSignal) {
  const events: RunEvent[] = []
  if (upTo <= after) return events
  try {
    for await (const { event } of stream<{ event: RunEvent }>('GET', path(id, after), undefined, signal)) {
      events.push(event)
      if (sequenceOf(event) >= upTo) break
    }
  } catch (error) {
    if (!(error instanceof Refusal) || error.status !== 200) throw error // a run that did not succeed ends its stream so
  }
  return events
}

export type Follower = {
  event: (event: RunEvent) => void
  /** The events after a sequence were lost, and others came in their place. */
  rewind: (after: number) => void
  /** What is wrong with the connection; empty: nothing. */
  trouble: (message: string) => void
}

/** Follows a run after an event, until it has ended, or the signal says so. */
export function follow(id: string, after: number, to: Follower, signal: AbortSignal) {
  let last = after,
    generation = '0',
    ended = false
  const channel = new BroadcastChannel(`cleanupd.run.${id}`)
  const take = (event: RunEvent) => {
    if (sequenceOf(event) !== last + 1) return false
    last++
    generation = event.logGeneration ?? '0'
    ended = event.runFinished !== undefined
    to.event(event)
    return true
  }

  // What another tab reads. A tab that came later, or was hidden, reads what it missed by itself.
  let catching = Promise.resolve()
  channel.onmessage = ({ data }: MessageEvent<RunEvent>) => {
    catching = catching
      .then(async () => {
        if (ended || signal.aborted || document.hidden || take(data) || sequenceOf(data) <= last) return
        for (const event of await between(id, last, sequenceOf(data), signal)) take(event)
      })
      .catch(() => {}) // the next event tries again
  }

  const read = async (visible: AbortSignal) => {
    for (let pause = 250; !ended && !visible.aborted; pause = Math.min(pause * 2, 5000)) {
      const quiet = new AbortController()
      const both = AbortSignal.any([visible, quiet.signal])
      let timer = setTimeout(() => quiet.abort(), silence)
      try {
        for await (const { event } of stream<{ event: RunEvent }>('GET', path(id, last, generation), undefined, both)) {
          clearTimeout(timer)
          timer = setTimeout(() => quiet.abort(), silence)
          if (take(event)) channel.postMessage(event)
          to.trouble('')
          pause = 250
        }
      } catch (error) {
        if (visible.aborted || ended) return
        if (error instanceof Refusal && error.reason === 'LOG_REPLACED') {
          last = Number(error.metadata.after_sequence ?? 0)
          generation = '0'
          to.rewind(last)
        } else if (error instanceof Refusal && error.status >= 400 && error.status < 500) {
          to.trouble(error.message)
          return
        } else if (!quiet.signal.aborted) {
          to.trouble(error instanceof Error ? error.message : String(error))
        }
      } finally {
        clearTimeout(timer)
      }
      if (!ended) await wait(pause, visible)
    }
  }

  const run = async () => {
    while (!ended && !signal.aborted) {
      const hidden = new AbortController()
      const hide = () => document.hidden && hidden.abort()
      document.addEventListener('visibilitychange', hide)
      const visible = AbortSignal.any([signal, hidden.signal])
      if (!document.hidden) {
        try {
          if (navigator.locks)
            await navigator.locks.request(`cleanupd.run.${id}`, { signal: visible }, () => read(visible))
          else await read(visible) // not in a secure context: each tab for itself
        } catch (error) {
          if (!visible.aborted) throw error
        }
      }
      document.removeEventListener('visibilitychange', hide)
      if (!ended && !signal.aborted) await (document.hidden ? shown(signal) : wait(1000, signal))
    }
    await catching
    channel.close()
  }
  run().catch(error => to.trouble(String(error)))
}

const shown = (signal: AbortSignal) =>
  new Promise<void>(resolve => {
    const once = { once: true, signal }
    document.addEventListener('visibilitychange', () => resolve(), once)
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
