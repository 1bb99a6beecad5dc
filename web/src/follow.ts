// Follows the events of a run: each one once and in order, even if the connection breaks, with one stream for all tabs of
// the browser. The tab that holds the run's lock reads the stream and forwards the events to the others.
import { query, ApiError, stream, wait, type RunEvent } from './api'
import { t } from './i18n'

const silence = 10_000

const path = (id: string, after: number, generation = '0') =>
  query(`/v1/runs/${id}/events`, { afterSequence: after, logGeneration: generation })
const sequenceOf = (event: RunEvent) => Number(event.sequence)

/** Returns the events of a run after one sequence number, up to and including another. */
export async function between(id: string, after: number, upTo: number, signal?: AbortSignal) {
  const events: RunEvent[] = []
  if (upTo <= after) return events
  try {
    for await (const { event } of stream<{ event: RunEvent }>('GET', path(id, after), undefined, signal)) {
      events.push(event)
      if (sequenceOf(event) >= upTo) break
    }
  } catch (error) {
    // The stream of a run that failed ends with an error.
    if (!(error instanceof ApiError) || error.status !== 200) throw error
  }
  return events
}

export type Follower = {
  event: (event: RunEvent) => void
  /** Called if the events after a sequence number were lost and replaced by others. */
  rewind: (after: number) => void
  /** Called with an error of the connection, or an empty message once it works again. */
  trouble: (message: string) => void
}

/** Follows a run from the event after the given one until it ends or signal is aborted. */
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

  // Events from the tab that reads the stream. A tab that was opened later, or hidden, loads the events it missed.
  let catching = Promise.resolve()
  channel.onmessage = ({ data }: MessageEvent<RunEvent>) => {
    catching = catching
      .then(async () => {
        if (ended || signal.aborted || document.hidden || take(data) || sequenceOf(data) <= last) return
        for (const event of await between(id, last, sequenceOf(data), signal)) take(event)
      })
      .catch(() => {}) // retried at the next event
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
        if (error instanceof ApiError && error.reason === 'LOG_REPLACED') {
          last = Number(error.metadata.after_sequence ?? 0)
          generation = '0'
          to.rewind(last)
        } else if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
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
          else await read(visible) // no locks in an insecure context: each tab reads its own stream
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

/** Starts a run, or a restore, and returns its ID once it is stored. */
export async function start(request: Record<string, unknown>, path = '/v1/runs') {
  for await (const { event } of stream<{ event: RunEvent }>('POST', path, { ...request, detach: true }))
    return event.runId!
  throw new Error(t('preview.notstarted'))
}
