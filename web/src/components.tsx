// The few components that all pages are made of.
import type { ComponentChildren } from 'preact'
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { Refusal } from './api'
import { day, percent, relative, t, time, type Key } from './i18n'

export type Loaded<T> = { value?: T; problem?: unknown; reload: () => void }

/** Loads something, and again when what it depends on changes. every: in milliseconds, while the page is seen. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, depends: unknown[], every = 0): Loaded<T> {
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
    // The caller says what load depends on; every never changes.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [...depends, round])
  return { ...state, reload: useCallback(() => setRound(n => n + 1), []) }
}

/** Does something once at a time, and knows what went wrong. A button of it is not disabled meanwhile: it would lose the focus. */
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

/** What went wrong, in the server's words, and what to do. */
export function Problem({ of, retry }: { of: unknown; retry?: () => void }) {
  if (of === undefined) return null
  const said = of instanceof Refusal
  return (
    <div class="problem" role="alert">
      <p lang={said ? 'en' : undefined}>
        {of instanceof TypeError ? t('problem.network') : of instanceof Error ? of.message : String(of)}
      </p>
      {retry && (
        <button type="button" onClick={retry}>
          {t('action.retry')}
        </button>
      )}
    </div>
  )
}

/** What is loaded, once it is there. */
export function Show<T>({ of, children }: { of: Loaded<T>; children: (value: T) => ComponentChildren }) {
  return (
    <>
      <Problem of={of.problem} retry={of.reload} />
      {of.value !== undefined
        ? children(of.value)
        : of.problem === undefined && (
            <p class="quiet" aria-busy="true">
              {t('loading')}
            </p>
          )}
    </>
  )
}

export type Piece<T> = { rows: T[]; next: string }

/** A list that the server gives piece by piece: the first one, and others on demand. */
export function Pieces<T>({
  load,
  depends,
  children,
}: {
  load: (token?: string, signal?: AbortSignal) => Promise<Piece<T>>
  depends: unknown[]
  children: (rows: T[]) => ComponentChildren
}) {
  const first = useLoad(signal => load(undefined, signal), depends)
  const [more, setMore] = useState<Piece<T> & { of: unknown }>()
  const { busy, problem, act } = useAction()
  return (
    <Show of={first}>
      {answer => {
        const further = more?.of === answer ? more : { of: answer, rows: [], next: answer.next }
        return (
          <>
            {children([...answer.rows, ...further.rows])}
            <Problem of={problem} />
            {further.next && (
              <p>
                <button
                  type="button"
                  aria-disabled={busy}
                  onClick={() =>
                    act(async () => {
                      const { rows, next } = await load(further.next)
                      setMore({ of: answer, rows: [...further.rows, ...rows], next })
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

/** The focus goes to the title of the page, where reading begins. */
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
  title: string
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
                <td key={c.title} class={c.numeric ? 'number' : ''}>
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

/** A share as a bar with its number. */
export function Bar({ share, label }: { share: number; label: string }) {
  return (
    <span class="bar">
      <progress max={1} value={Math.min(1, share)} aria-label={label} />
      <span class="number">{percent(share)}</span>
    </span>
  )
}

/** A moment: in full, or how long ago, or its day. */
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
  FAILED: 'bad',
  CANCELLED: 'warn',
  NOT_RUN: 'warn',
  GOES: 'bad',
  LATER: 'warn',
  STAYS: 'good',
  TRUE: 'good',
  TRIPPED: 'bad',
  HELD: 'good',
}

/** The state of a run or a task, or a verdict. */
export function Badge({ state }: { state?: string }) {
  const name = (state ?? '').replace(/^(RUN_STATE|TASK_STATE|VERDICT)_/, '')
  return <span class={`badge ${shades[name] ?? ''}`}>{t(`state.${name}` as Key)}</span>
}

export function Field({ label, help, children }: { label: string; help?: string; children: ComponentChildren }) {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
      {help && <small class="quiet">{help}</small>}
    </label>
  )
}

/** Asks before something is done. expected: what has to be typed. ready: whether it may be done. */
export function Confirm({
  title,
  action,
  expected,
  ready = true,
  busy,
  problem,
  onDo,
  onClose,
  children,
}: {
  title: string
  action: string
  expected?: string
  ready?: boolean
  busy?: boolean
  problem?: unknown
  onDo: () => void
  onClose: () => void
  children?: ComponentChildren
}) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [typed, setTyped] = useState('')
  useEffect(() => {
    const shown = dialog.current!
    shown.showModal()
    return () => {
      if (!shown.open) return // the browser has returned the focus
      shown.close()
      focusTitle() // it is done: the button may be gone with what it was for
    }
  }, [])
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="confirm-title">
      <form
        method="dialog"
        onSubmit={event => {
          event.preventDefault()
          onDo()
        }}
      >
        <h2 id="confirm-title">{title}</h2>
        {children}
        {expected !== undefined && (
          <Field label={t('confirm.type', { what: expected })}>
            <input value={typed} onInput={e => setTyped(e.currentTarget.value)} autoComplete="off" spellcheck={false} />
          </Field>
        )}
        <Problem of={problem} />
        <div class="actions">
          <button type="button" onClick={() => dialog.current!.close()}>
            {t('action.back')}
          </button>
          <button
            type="submit"
            class="primary"
            aria-disabled={busy}
            disabled={!ready || (expected !== undefined && typed !== expected)}
          >
            {action}
          </button>
        </div>
      </form>
    </dialog>
  )
}

export const Code = ({ children }: { children: ComponentChildren }) => <code lang="en">{children}</code>
