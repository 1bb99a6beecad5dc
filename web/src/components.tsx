// Components and hooks shared by all pages.
import type { ComponentChildren } from 'preact'
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { ApiError } from './api'
import { day, number, percent, relative, said, t, time, type Key, type Message } from './i18n'

export type Loaded<T> = { value?: T; problem?: unknown; reload: () => void }

/** Loads a value, and reloads it when a dependency changes, and every few milliseconds while the page is visible. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, dependencies: unknown[], every = 0): Loaded<T> {
  const [state, setState] = useState<{ value?: T; problem?: unknown }>({})
  const [round, setRound] = useState(0)
  useEffect(() => {
    const ended = new AbortController()
    const look = () =>
      load(ended.signal).then(
        value => setState({ value }),
        problem => {
          if (!ended.signal.aborted) setState(before => ({ ...before, problem }))
        },
      )
    look()
    const timer =
      every > 0
        ? setInterval(() => {
            if (!document.hidden) look()
          }, every)
        : 0
    return () => {
      ended.abort()
      clearInterval(timer)
    }
    // The caller lists the dependencies of load; every never changes.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [...dependencies, round])
  return { ...state, reload: useCallback(() => setRound(n => n + 1), []) }
}

/** Runs one action at a time and keeps its error. Meanwhile buttons are aria-disabled: disabled ones lose the focus. */
export function useAction(): {
  busy: boolean
  problem: unknown
  act: (what: () => Promise<unknown>) => Promise<boolean>
} {
  const [state, setState] = useState<{ busy: boolean; problem: unknown }>({ busy: false, problem: undefined })
  const running = useRef(false)
  return {
    ...state,
    act: async what => {
      if (running.current) return false
      running.current = true
      setState({ busy: true, problem: undefined })
      try {
        await what()
        setState({ busy: false, problem: undefined })
        return true
      } catch (problem) {
        setState({ busy: false, problem })
        return false
      } finally {
        running.current = false
      }
    },
  }
}

/** Shows an error, with a button to retry. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  if (error === undefined) return null
  const fromServer = error instanceof ApiError
  return (
    <div class="problem" role="alert">
      <p lang={fromServer ? 'en' : undefined}>
        {error instanceof TypeError ? t('problem.network') : error instanceof Error ? error.message : String(error)}
      </p>
      {retry && (
        <button type="button" onClick={retry}>
          {t('action.retry')}
        </button>
      )}
    </div>
  )
}

/** Whether settings were not saved because somebody else changed them after they were loaded. */
export const isStale = (error: unknown) => error instanceof ApiError && error.status === 409

/** Shows why settings were not saved. If they are stale, a button loads them again. */
export function SaveProblem({ error, reload }: { error: unknown; reload: () => void }) {
  return (
    <>
      <Problem error={error} retry={isStale(error) ? reload : undefined} />
      {isStale(error) && <p>{t('settings.stale')}</p>}
    </>
  )
}

/** Shows a loaded value, its error, or that it is loading. */
export function Show<T>({ loaded, children }: { loaded: Loaded<T>; children: (value: T) => ComponentChildren }) {
  return (
    <>
      <Problem error={loaded.problem} retry={loaded.reload} />
      {loaded.value !== undefined
        ? children(loaded.value)
        : loaded.problem === undefined && (
            <p class="quiet" aria-busy="true">
              {t('loading')}
            </p>
          )}
    </>
  )
}

export type ListPage<T> = { rows: T[]; next: string }

/** Shows a paged list: the first page, and further ones on demand. */
export function PagedList<T>({
  load,
  dependencies,
  children,
}: {
  load: (token?: string, signal?: AbortSignal) => Promise<ListPage<T>>
  dependencies: unknown[]
  children: (rows: T[]) => ComponentChildren
}) {
  const first = useLoad(signal => load(undefined, signal), dependencies)
  const [more, setMore] = useState<ListPage<T> & { first: ListPage<T> }>()
  const { busy, problem, act } = useAction()
  return (
    <Show loaded={first}>
      {answer => {
        const further = more?.first === answer ? more : { first: answer, rows: [], next: answer.next }
        return (
          <>
            {children([...answer.rows, ...further.rows])}
            <Problem error={problem} />
            {further.next && (
              <p>
                <button
                  type="button"
                  aria-disabled={busy}
                  onClick={() =>
                    act(async () => {
                      const { rows, next } = await load(further.next)
                      setMore({ first: answer, rows: [...further.rows, ...rows], next })
                    })
                  }
                >
                  {t('action.more')}
                </button>
              </p>
            )}
          </>
        )
      }}
    </Show>
  )
}

/** Moves the focus to the page's title, where a screen reader starts reading. */
export const focusTitle = () => document.querySelector<HTMLElement>('h1')?.focus()

export function Page({
  title,
  intro,
  actions,
  children,
}: {
  title: string
  intro?: string
  actions?: ComponentChildren
  children: ComponentChildren
}) {
  useEffect(() => {
    document.title = `${title} · cleanupd`
  }, [title])
  return (
    <>
      <header class="page">
        <h1 tabIndex={-1}>{title}</h1>
        {actions && <div class="actions">{actions}</div>}
        {intro && <p class="quiet">{intro}</p>}
      </header>
      {children}
    </>
  )
}

export function Section({
  title,
  actions,
  children,
}: {
  title: ComponentChildren
  actions?: ComponentChildren
  children: ComponentChildren
}) {
  return (
    <section>
      <div class="head">
        <h2>{title}</h2>
        {actions && <div class="actions">{actions}</div>}
      </div>
      {children}
    </section>
  )
}

export type Column<T> = { title: string; cell: (row: T) => ComponentChildren; numeric?: boolean }

export function Table<T>({
  label,
  columns,
  rows,
  empty,
  keyOf,
  foot,
}: {
  label: string
  columns: Column<T>[]
  rows: T[]
  empty?: string
  keyOf: (row: T) => string
  foot?: ComponentChildren
}) {
  if (rows.length === 0) return <p class="empty">{empty ?? t('empty')}</p>
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map(c => (
              <th key={c.title} scope="col" class={c.numeric ? 'number' : ''}>
                {c.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(row => (
            <tr key={keyOf(row)}>
              {columns.map(c => (
                <td key={c.title} class={c.numeric ? 'number' : ''} data-title={c.title}>
                  {c.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
        {foot && <tfoot>{foot}</tfoot>}
      </table>
    </div>
  )
}

/** Shows a share as a bar and a percentage. */
export function Bar({ share, label }: { share: number; label: string }) {
  return (
    <span class="bar">
      <progress max={1} value={Math.min(1, share)} aria-label={label} />
      <span class="number">{percent(share)}</span>
    </span>
  )
}

/** Shows a message of a run or of the schedule, in the language of the console if that is known. */
export function Said({ message }: { message: Message }) {
  const { text, lang } = said(message)
  return <span lang={lang}>{text}</span>
}

/** Shows a time: in full, relative to now, or its day only. */
export function Moment({ at, ago, dayOnly }: { at?: string | null; ago?: boolean; dayOnly?: boolean }) {
  if (!at) return <>–</>
  const utc = new Date(at).toISOString().replace('T', ' ').slice(0, 19) + ' UTC'
  return (
    <time dateTime={at} title={utc}>
      {ago ? relative(at) : dayOnly ? day(at) : time(at)}
    </time>
  )
}

const shades: Record<string, string> = {
  SUCCEEDED: 'good',
  RUNNING: 'busy',
  QUEUED: 'busy',
  PAUSED: 'warn',
  INTERRUPTED: 'warn',
  FAILED: 'bad',
  CANCELLED: 'warn',
  NOT_RUN: 'warn',
  DELETE_NEXT_RUN: 'bad',
  DELETE_LATER: 'warn',
  RETAINED: 'good',
  TRUE: 'good',
  TRIPPED: 'bad',
  ON_HOLD: 'good',
}

/** Shows the state of a run or a task, or a verdict. */
export function Badge({ state }: { state?: string }) {
  const name = (state ?? '').replace(/^(RUN_STATE|TASK_STATE|VERDICT)_/, '')
  return <span class={`badge ${shades[name] ?? ''}`}>{t(`state.${name}` as Key)}</span>
}

/** Shows a control with its label. problem is what the server says about its value: the control has aria-invalid then. */
export function Field({
  label,
  help,
  problem,
  children,
}: {
  label: string
  help?: string
  problem?: string
  children: ComponentChildren
}) {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
      {help && <small class="quiet">{help}</small>}
      <Violation text={problem} />
    </label>
  )
}

/** Shows what the server says about the value of a field. */
export const Violation = ({ text }: { text?: string }) =>
  text === undefined ? null : (
    <small class="violation" role="alert" lang="en">
      {text}
    </small>
  )

/** Returns a reference to a form whose first invalid control gets the focus when there is a problem. */
export function useInvalid(problem: unknown) {
  const form = useRef<HTMLFormElement>(null)
  useLayoutEffect(() => {
    if (problem !== undefined) form.current?.querySelector<HTMLElement>('[aria-invalid=true]')?.focus()
  }, [problem])
  return form
}

/** Asks for confirmation. expected is the text or number to type, if any; the action stays disabled until ready. */
export function Confirm({
  title,
  action,
  expected,
  ready = true,
  busy,
  problem,
  onConfirm,
  onClose,
  children,
}: {
  title: string
  action: string
  expected?: string | number
  ready?: boolean
  busy?: boolean
  problem?: unknown
  onConfirm: () => void
  onClose: () => void
  children?: ComponentChildren
}) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [typed, setTyped] = useState('')
  const counted = typeof expected === 'number'
  const confirmed = expected === undefined || (counted ? typed.replace(/\D/g, '') : typed) === String(expected)
  useEffect(() => {
    const shown = dialog.current!
    shown.showModal()
    return () => {
      if (!shown.open) return // the browser has restored the focus
      shown.close()
      focusTitle() // the action may have removed the button that opened the dialog
    }
  }, [])
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="confirm-title">
      <form
        method="dialog"
        onSubmit={event => {
          event.preventDefault()
          onConfirm()
        }}
      >
        <h2 id="confirm-title">{title}</h2>
        {children}
        {expected !== undefined && (
          <Field label={t('confirm.type', { what: counted ? number(expected) : expected })}>
            <input
              inputMode={counted ? 'numeric' : undefined}
              value={typed}
              onInput={e => setTyped(e.currentTarget.value)}
              autoComplete="off"
              spellcheck={false}
            />
          </Field>
        )}
        <Problem error={problem} />
        <div class="actions">
          <button type="button" onClick={() => dialog.current!.close()}>
            {t('action.back')}
          </button>
          <button type="submit" class="primary" aria-disabled={busy} disabled={!ready || !confirmed}>
            {action}
          </button>
        </div>
      </form>
    </dialog>
  )
}

export const Code = ({ children }: { children: ComponentChildren }) => <code lang="en">{children}</code>
