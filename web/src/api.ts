// Calls the REST API: one function for unary calls, one for streams. Only signing in sends requests of its own.
import type { components } from './openapi'

type Schemas = components['schemas']
export type Run = Schemas['v1Run']
export type TaskResult = Schemas['v1TaskResult']
export type TablePreview = Schemas['v1TablePreview']
export type RunEvent = Schemas['v1RunEvent']
export type Task = Schemas['v1Task']
export type Options = Schemas['v1Options']
export type OptionsAnswer = Schemas['v1GetOptionsResponse']
export type Schedule = Schemas['v1Schedule']
export type ScheduleAnswer = Schemas['v1GetScheduleResponse']
export type Guards = Schemas['v1Guards']
export type GuardsAnswer = Schemas['v1GetGuardsResponse']
export type TrippedGuard = Schemas['v1TrippedGuard']
export type Throttle = Schemas['v1Throttle']
export type Hold = Schemas['v1Hold']
export type AuditEntry = Schemas['v1AuditEntry']
export type Caller = Schemas['v1WhoAmIResponse']
export type Server = Schemas['v1GetServerResponse']
export type ExplainedTask = Schemas['v1ExplainTaskResponse']
export type DatabaseTable = Schemas['v1Table']
export type Explanation = Schemas['v1ExplainRowResponse']
export type Found = Schemas['v1FindUserDataResponse']
export type Receipt = Schemas['v1Receipt']
export type Purge = Schemas['v1FormsPurge']
export type Forecast = Schemas['v1GetForecastResponse']
export type TaskForecast = Schemas['v1TaskForecast']
export type SequenceForecast = Schemas['v1SequenceForecast']
export type Policy = Schemas['v1Policy']
export type Window = Schemas['v1Window']
export type TrashEntry = Schemas['v1TrashEntry']
export type TrashedRow = Schemas['v1TrashedRow']
export type TrashAnswer = Schemas['v1ListTrashResponse']

/** What is wrong with a field of a request. */
export type Violation = { field: string; description: string }

/** An error response of the server. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly reason = '',
    readonly metadata: Record<string, string> = {},
    readonly violations: Violation[] = [],
  ) {
    super(message)
  }
}

type Problem = {
  message?: string
  details?: {
    reason?: string
    metadata?: Record<string, string>
    fieldViolations?: Violation[]
  }[]
}

function apiError(problem: Problem, status: number) {
  const details = problem.details ?? []
  const violations = details.flatMap(d => d.fieldViolations ?? [])
  const info = details.find(d => d.reason)
  return new ApiError(
    violations.length > 0 ? sentences(violations) : problem.message || String(status),
    status,
    info?.reason,
    info?.metadata,
    violations,
  )
}

const sentences = (violations: Violation[]) => violations.map(v => `${v.field} ${v.description}`.trim()).join('\n')

/** Whether a violation is about a field or one of its elements, such as days[1] for days. */
const isAt = (violation: Violation, field: string) =>
  violation.field.startsWith(field) && /^(\[\d+\])?$/.test(violation.field.slice(field.length))

/** Returns what an error says about a field; undefined if it says nothing. */
export const violationAt = (error: unknown, field: string) =>
  error instanceof ApiError
    ? error.violations
        .filter(v => isAt(v, field))
        .map(v => v.description)
        .join('\n') || undefined
    : undefined

/** Returns an error without what it says about fields that show it themselves; undefined if nothing else remains. */
export function withoutFields(error: unknown, fields: string[]) {
  if (!(error instanceof ApiError) || error.violations.length === 0) return error
  const rest = error.violations.filter(v => !fields.some(field => isAt(v, field)))
  return rest.length > 0 ? new ApiError(sentences(rest), error.status, error.reason, error.metadata, rest) : undefined
}

/** The bearer token, empty if there is none. renew requests a new token and reports whether that succeeded. */
export const session = { token: '', renew: async () => false, signedOut: () => {} }

async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const request = () => {
    const headers: Record<string, string> = {}
    if (session.token) headers.authorization = `Bearer ${session.token}`
    if (body !== undefined) headers['content-type'] = 'application/json'
    return fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: 'no-store',
    })
  }
  let answer = await request()
  if (answer.status === 401 && (await session.renew())) answer = await request()
  if (answer.ok) return answer
  if (answer.status === 401) session.signedOut()
  const problem = await answer.json().catch(() => ({ message: answer.statusText }))
  throw apiError(problem.error ?? problem, answer.status)
}

/** Waits for some time, or until signal is aborted. */
export const wait = (ms: number, signal?: AbortSignal) =>
  new Promise<void>(resolve => {
    const timer = setTimeout(resolve, ms)
    signal?.addEventListener(
      'abort',
      () => {
        clearTimeout(timer)
        resolve()
      },
      { once: true },
    )
  })

/** Milliseconds before a read is repeated that the server could not answer, such as while its database restarts. */
const pauses = [500, 2000]

export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  for (const pause of method === 'GET' ? pauses : []) {
    try {
      return await (await send(method, path, body, signal)).json()
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 503) throw error
    }
    await wait(pause, signal)
  }
  return (await send(method, path, body, signal)).json()
}

/** Yields the values of a stream of JSON lines. Throws a ApiError if the server ends the stream with an error. */
export async function* stream<T>(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): AsyncGenerator<T> {
  const answer = await send(method, path, body, signal)
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) return
      const lines = (rest + value).split('\n')
      rest = lines.pop()!
      for (const line of lines) {
        if (!line) continue
        const { result, error } = JSON.parse(line)
        if (error) throw apiError(error, 200)
        yield result
      }
    }
  } finally {
    reader.cancel().catch(() => {}) // the connection may already be closed
  }
}

/** Returns path with a query string of the values that are not empty. */
export function query(path: string, values: Record<string, string | number | boolean | undefined>) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== '')
  return given.length === 0
    ? path
    : `${path}?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`
}
