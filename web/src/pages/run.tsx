// What is it doing, how far is it, why does it wait; and what did it do?
import { useEffect, useReducer, useRef, useState } from 'preact/hooks'
import { call, type Run, type RunEvent, type TaskResult } from '../api'
import { Line } from '../chart'
import { Badge, Bar, Code, Confirm, Moment, Page, Problem, Section, Table, useAction } from '../components'
import { between, follow } from '../follow'
import { bytes, clock, number, period, t, time } from '../i18n'
import type { Context } from '../main'
import { ended, total } from '../runs'
import { Foreseen } from './foreseen'

const page = 500, lines = 2000, samples = 600

/** A task as the events so far tell. */
type Live = { object?: string; expected?: number; rate: number; waits?: string; way?: string }
type Entry = { sequence: number; at: string; level: string; task: string; message: string }

class Model {
  live = new Map<string, Live>()
  log: Entry[] = []
  rates: number[] = []
  first = 0 // the sequence before the first event that was loaded
  last = 0
  seen = 0

  constructor(public run: Run) {}

  private result(task: string): TaskResult {
    return this.run.results?.find(r => r.task === task) ?? {}
  }

  /** Takes an event; those from before the run was read say nothing new about its tasks. */
  take(event: RunEvent, known = false) {
    this.last = Math.max(this.last, Number(event.sequence))
    this.seen++
    const { runStarted, taskStarted, taskProgress: p, taskFinished, log, runFinished } = event
    if (log) this.note({ sequence: Number(event.sequence), at: event.time!, level: log.level!, task: log.task ?? '', message: log.message ?? '' })
    if (p) {
      this.rates = [...this.rates.slice(1 - samples), p.rowsPerSecond ?? 0]
      this.live.set(p.task!, { object: p.object, expected: p.rowsExpected === undefined || p.rowsExpected === null ? undefined : Number(p.rowsExpected), rate: p.rowsPerSecond ?? 0, waits: p.throttledBy, way: p.way })
    }
    if (known) return
    if (runStarted?.run) this.run = { ...this.run, ...runStarted.run, lastSequence: this.run.lastSequence }
    if (runFinished?.run) this.run = { ...this.run, ...runFinished.run }
    if (taskStarted) Object.assign(this.result(taskStarted.task!), { state: 'TASK_STATE_RUNNING', startTime: event.time })
    if (p) Object.assign(this.result(p.task!), { state: 'TASK_STATE_RUNNING', rowsDeleted: p.rowsDeleted, rowsUpdated: p.rowsUpdated, tablesDropped: p.tablesDropped, batches: p.batches })
    if (taskFinished?.result) Object.assign(this.result(taskFinished.result.task!), taskFinished.result)
  }

  note(entry: Entry) {
    this.log.push(entry)
    if (this.log.length > lines) this.log.splice(0, this.log.length - lines)
  }
}

/** A run as its events tell it, and what is wrong with the connection. */
function useRun(id: string) {
  const model = useRef<Model | undefined>(undefined)
  const [problem, fail] = useState<unknown>()
  const [trouble, tell] = useState('')
  const [, redraw] = useReducer((n: number) => n + 1, 0)
  useEffect(() => {
    const left = new AbortController()
    let frame = 0
    const draw = () => { frame ||= requestAnimationFrame(() => { frame = 0; redraw(0) }) }
    const open = async () => {
      const { run } = await call<{ run: Run }>('GET', `/v1/runs/${encodeURIComponent(id)}`, undefined, left.signal)
      const m = new Model(run)
      const last = Number(run.lastSequence)
      m.first = Math.max(0, last - page)
      for (const event of await between(run.id!, m.first, last, left.signal)) m.take(event, true)
      m.last = last
      model.current = m
      draw()
      if (ended(run)) return
      follow(run.id!, last, {
        event: event => {
          m.take(event)
          draw()
          if (event.runFinished) call<{ run: Run }>('GET', `/v1/runs/${run.id}`).then(({ run }) => { m.run = run; draw() }, fail) // with space and previews
        },
        rewind: after => { m.log = m.log.filter(e => e.sequence <= after); m.last = after; draw() },
        trouble: tell,
      }, left.signal)
    }
    open().catch(error => { if (!left.signal.aborted) fail(error) })
    return () => { left.abort(); cancelAnimationFrame(frame) }
  }, [id])
  const earlier = async () => {
    const m = model.current!
    const from = Math.max(0, m.first - page)
    const old = new Model(m.run)
    for (const event of await between(m.run.id!, from, m.first)) old.take(event, true)
    m.log = [...old.log, ...m.log]
    m.seen += old.seen
    m.first = from
    redraw(0)
  }
  return { model: model.current, problem, trouble, earlier }
}

function Pipeline({ model }: { model: Model }) {
  const { run, live } = model
  const shown = (run.results ?? []).filter(r => r.state !== 'TASK_STATE_SKIPPED' || r.detail)
  const sum = (of: (r: TaskResult) => number) => number(shown.reduce((n, r) => n + of(r), 0))
  return (
    <Table label={t('run.pipeline')} rows={shown} keyOf={r => r.task!} columns={[
      { title: t('run.task'), cell: r => {
        const now = r.state === 'TASK_STATE_RUNNING' ? live.get(r.task!) : undefined
        return (
          <>
            <span lang="en">{r.task}</span>
            {now?.object && <div class="quiet" lang="en"><Code>{now.object}</Code></div>}
            {now?.waits && <div class="badge warn" lang="en">{t('run.waits', { why: now.waits })}</div>}
            {(r.error || r.detail) && <div class={r.error ? 'bad' : 'quiet'} lang="en">{r.error || r.detail}</div>}
          </>
        )
      } },
      { title: t('history.state'), cell: r => <Badge state={r.state} /> },
      { title: t('run.progress'), cell: r => {
        const now = r.state === 'TASK_STATE_RUNNING' ? live.get(r.task!) : undefined
        const done = Number(r.rowsDeleted)
        if (!now?.expected) return null
        return <><Bar share={done / now.expected} label={r.task!} />{now.rate > 0 && <div class="quiet">{t('run.left', { period: period((now.expected - done) / now.rate) })}</div>}</>
      } },
      { title: t('run.deleted'), numeric: true, cell: r => number(r.rowsDeleted) },
      { title: t('run.updated'), numeric: true, cell: r => number(r.rowsUpdated) },
      { title: t('run.dropped'), numeric: true, cell: r => number(r.tablesDropped) },
      { title: t('run.batches'), numeric: true, cell: r => number(r.batches) },
      { title: t('duration'), numeric: true, cell: r => r.startTime ? period(((r.endTime ? Date.parse(r.endTime) : Date.now()) - Date.parse(r.startTime)) / 1000) : '' },
    ]} foot={<tr><td>{t('run.all')}</td><td /><td /><td class="number">{sum(r => Number(r.rowsDeleted))}</td><td class="number">{sum(r => Number(r.rowsUpdated))}</td><td class="number">{sum(r => Number(r.tablesDropped))}</td><td class="number">{sum(r => Number(r.batches))}</td><td /></tr>} />
  )
}

function Space({ run }: { run: Run }) {
  const tables = (run.results ?? []).flatMap(r => (r.space ?? []).map(space => ({ task: r.task, ...space })))
  if (tables.length === 0) return null
  const size = (table: string | undefined, index: string | undefined) => Number(table) + Number(index)
  return (
    <Section title={t('run.space')}>
      <Table label={t('run.space')} rows={tables} keyOf={s => `${s.task} ${s.table}`} columns={[
        { title: t('table'), cell: s => <Code>{s.table}</Code> },
        { title: t('run.task'), cell: s => <span lang="en">{s.task}</span> },
        { title: t('run.deleted'), numeric: true, cell: s => number(s.rowsDeleted) },
        { title: t('run.before'), numeric: true, cell: s => bytes(size(s.tableBytesBefore, s.indexBytesBefore)) },
        { title: t('run.after'), numeric: true, cell: s => bytes(size(s.tableBytesAfter, s.indexBytesAfter)) },
        { title: t('run.reusable'), numeric: true, cell: s => bytes(Number(s.deadBytes ?? 0) + Number(s.freeBytes ?? 0)) },
      ]} />
    </Section>
  )
}

const levels: Record<string, string> = { LOG_LEVEL_WARNING: 'warn', LOG_LEVEL_ERROR: 'bad' }

function Log({ model, earlier }: { model: Model; earlier: () => Promise<void> }) {
  const { busy, problem, act } = useAction()
  return (
    <Section title={t('run.log')} actions={<span class="quiet" data-events={model.last} data-seen={model.seen}>{t('run.events', { n: number(model.last) })}</span>}>
      {model.first > 0 && <p><button type="button" aria-disabled={busy} onClick={() => act(earlier)}>{t('run.earlier')}</button></p>}
      <Problem of={problem} />
      {model.log.length === 0 ? <p class="empty">{t('run.nolog')}</p> : (
        <div class="scroll log" tabIndex={0} role="log" aria-label={t('run.log')}>
          {model.log.map(e => <p key={e.sequence} class={levels[e.level]}><time dateTime={e.at} title={e.at}>{clock(e.at)}</time><span lang="en">{e.task && `${e.task}: `}{e.message}</span></p>)}
        </div>
      )}
    </Section>
  )
}

export function RunPage({ context, argument: [id = ''] }: { context: Context; argument: string[] }) {
  const { model, problem, trouble, earlier } = useRun(id)
  const [asks, ask] = useState(false)
  const { busy, problem: refused, act } = useAction()
  if (!model) return <Page title={t('run.title')}>{problem === undefined ? <p class="quiet" aria-busy="true">{t('loading')}</p> : <Problem of={problem} />}</Page>
  const { run } = model
  const active = !ended(run)
  return (
    <Page title={`${run.dryRun ? t('run.dry') : t('run.title')} · ${run.createTime ? time(run.createTime) : ''}`}
      actions={active && context.may('OPERATOR') && <button type="button" onClick={() => ask(true)}>{t('run.cancel')}</button>}>
      {asks && <Confirm title={t('run.cancel')} action={t('run.cancel')} busy={busy} problem={refused} onClose={() => ask(false)}
        onDo={() => act(() => call('POST', `/v1/runs/${run.id}:cancel`)).then(done => done && ask(false))}><p>{t('run.cancel.help')}</p></Confirm>}
      {trouble && <div class="notice" role="status"><p>{t('run.trouble')} <span lang="en">{trouble}</span></p></div>}
      <Problem of={problem} />
      <p role="status"><Badge state={run.state} /> {active ? t('run.since') : t('run.ended')} <Moment at={active ? run.startTime ?? run.createTime : run.endTime} ago={active} /> · <span lang="en">{run.requestedBy}</span>
        {run.plan && <> · <a href={`#/runs/${run.plan}`}>{t('run.ofplan')}</a></>} {!run.dryRun && <> · {number(total(run))} {t('rows')}</>}</p>
      {run.error && <div class="problem"><p lang="en">{run.error}</p></div>}
      {run.dryRun && !active && <Foreseen run={run} context={context} />}
      {!run.dryRun && model.rates.some(rate => rate > 0) && <Section title={t('run.rate')}><Line label={t('run.rate')} values={model.rates} show={n => number(n)} /></Section>}
      {(!run.dryRun || active) && <Section title={t('run.pipeline')}><Pipeline model={model} /></Section>}
      <Space run={run} />
      <Log model={model} earlier={earlier} />
    </Page>
  )
}
