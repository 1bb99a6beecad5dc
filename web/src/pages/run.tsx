// A run: its tasks, progress, log and result, updated live while it is active.
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from 'preact/hooks'
import { call, type Run, type TaskResult } from '../api'
import { Line } from '../chart'
import { Badge, Bar, Code, Confirm, Moment, Page, Problem, Said, Section, Table, useAction } from '../components'
import { between, follow } from '../follow'
import { bytes, clock, number, period, short, t, time, type Key } from '../i18n'
import type { Context } from '../context'
import { Model } from '../model'
import { ended, total } from '../runs'
import { DryRunResult } from './dryrun'

/** Loads a run and follows its events. trouble is the current error of the connection. */
function useRun(id: string) {
  const model = useRef<Model | undefined>(undefined)
  const [problem, setProblem] = useState<unknown>()
  const [trouble, setTrouble] = useState('')
  const [, redraw] = useReducer((n: number) => n + 1, 0)
  useEffect(() => {
    const closed = new AbortController()
    let frame = 0
    const draw = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0
        redraw(0)
      })
    }
    const open = async () => {
      const { run } = await call<{ run: Run }>('GET', `/v1/runs/${encodeURIComponent(id)}`, undefined, closed.signal)
      const m = new Model(run)
      await m.load((after, upTo) => between(id, after, upTo, closed.signal))
      model.current = m
      draw()
      if (ended(run)) return
      follow(
        run.id!,
        m.last,
        {
          event: event => {
            m.take(event)
            draw()
            if (event.runFinished)
              call<{ run: Run }>('GET', `/v1/runs/${run.id}`).then(({ run }) => {
                m.run = run
                draw()
              }, setProblem) // the final result has the space and the previews
          },
          rewind: after => {
            m.rewind(after)
            draw()
          },
          trouble: setTrouble,
        },
        closed.signal,
      )
    }
    open().catch(error => {
      if (!closed.signal.aborted) setProblem(error)
    })
    return () => {
      closed.abort()
      cancelAnimationFrame(frame)
    }
  }, [id])
  const loadLog = async (direction: 'earlier' | 'later') => {
    await model.current![direction]((after, upTo) => between(id, after, upTo))
    redraw(0)
  }
  return { model: model.current, problem, trouble, loadLog }
}

function Pipeline({ model }: { model: Model }) {
  const { run, live } = model
  const shown = (run.results ?? []).filter(r => r.state !== 'TASK_STATE_SKIPPED' || r.detail)
  const sum = (value: (r: TaskResult) => number) => number(shown.reduce((n, r) => n + value(r), 0))
  return (
    <Table
      label={t('run.pipeline')}
      rows={shown}
      keyOf={r => r.task!}
      columns={[
        {
          title: t('run.task'),
          cell: r => {
            const now = r.state === 'TASK_STATE_RUNNING' ? live.get(r.task!) : undefined
            return (
              <>
                <span lang="en">{r.task}</span>
                {now?.object && (
                  <div class="quiet" lang="en">
                    <Code>{now.object}</Code>
                  </div>
                )}
                {now?.waits && (
                  <div class="badge warn">
                    {t('run.waits', { why: t(`throttle.${now.waits.reason!.replace('THROTTLE_REASON_', '')}` as Key) })}{' '}
                    <span lang="en">{now.waits.detail}</span>
                  </div>
                )}
                {r.error && (
                  <div class="bad" lang="en">
                    {r.error}
                  </div>
                )}
                {!r.error && r.detail && (
                  <div class="quiet">
                    {(r.details?.length ? r.details : [{ text: r.detail }]).map((d, i) => (
                      <div key={i}>
                        <Said message={d} />
                      </div>
                    ))}
                  </div>
                )}
              </>
            )
          },
        },
        { title: t('history.state'), cell: r => <Badge state={r.state} /> },
        {
          title: t('run.progress'),
          cell: r => {
            const now = r.state === 'TASK_STATE_RUNNING' ? live.get(r.task!) : undefined
            const done = Number(r.rowsDeleted)
            if (!now?.expected) return null
            return (
              <>
                <Bar share={done / now.expected} label={r.task!} />
                {now.rate > 0 && (
                  <div class="quiet">{t('run.left', { period: period((now.expected - done) / now.rate) })}</div>
                )}
              </>
            )
          },
        },
        { title: t('run.deleted'), numeric: true, cell: r => number(r.rowsDeleted) },
        { title: t('run.updated'), numeric: true, cell: r => number(r.rowsUpdated) },
        { title: t('run.dropped'), numeric: true, cell: r => number(r.tablesDropped) },
        { title: t('run.batches'), numeric: true, cell: r => number(r.batches) },
        {
          title: t('duration'),
          numeric: true,
          cell: r =>
            r.startTime
              ? period(((r.endTime ? Date.parse(r.endTime) : Date.now()) - Date.parse(r.startTime)) / 1000)
              : '',
        },
      ]}
      foot={
        <tr>
          <td>{t('run.all')}</td>
          <td />
          <td />
          <td class="number">{sum(r => Number(r.rowsDeleted))}</td>
          <td class="number">{sum(r => Number(r.rowsUpdated))}</td>
          <td class="number">{sum(r => Number(r.tablesDropped))}</td>
          <td class="number">{sum(r => Number(r.batches))}</td>
          <td />
        </tr>
      }
    />
  )
}

function Space({ run }: { run: Run }) {
  const tables = (run.results ?? []).flatMap(r => (r.space ?? []).map(space => ({ task: r.task, ...space })))
  if (tables.length === 0) return null
  const size = (table: string | undefined, index: string | undefined) => Number(table) + Number(index)
  return (
    <Section title={t('run.space')}>
      <Table
        label={t('run.space')}
        rows={tables}
        keyOf={s => `${s.task} ${s.table}`}
        columns={[
          { title: t('table'), cell: s => <Code>{s.table}</Code> },
          { title: t('run.task'), cell: s => <span lang="en">{s.task}</span> },
          { title: t('run.deleted'), numeric: true, cell: s => number(s.rowsDeleted) },
          { title: t('run.before'), numeric: true, cell: s => bytes(size(s.tableBytesBefore, s.indexBytesBefore)) },
          { title: t('run.after'), numeric: true, cell: s => bytes(size(s.tableBytesAfter, s.indexBytesAfter)) },
          {
            title: t('run.reusable'),
            numeric: true,
            cell: s => bytes(Number(s.deadBytes ?? 0) + Number(s.freeBytes ?? 0)),
          },
        ]}
      />
    </Section>
  )
}

const levels: Record<string, string> = { LOG_LEVEL_WARNING: 'warn', LOG_LEVEL_ERROR: 'bad' }

function Log({ model, loadLog }: { model: Model; loadLog: (direction: 'earlier' | 'later') => Promise<void> }) {
  const { busy, problem, act } = useAction()
  const box = useRef<HTMLDivElement>(null),
    atEnd = useRef(true)
  useLayoutEffect(() => {
    // keep the newest line in view if it was in view before
    if (box.current && atEnd.current && model.upTo === model.last) box.current.scrollTop = box.current.scrollHeight
  }, [model.last, model.upTo])
  const move = (direction: 'earlier' | 'later') =>
    act(async () => {
      await loadLog(direction)
      if (direction === 'earlier') box.current?.scrollTo(0, 0)
    })
  return (
    <Section
      title={t('run.log')}
      actions={
        <span class="quiet" data-events={model.last} data-seen={model.seen}>
          {t('run.events', { n: number(model.last) })}
        </span>
      }
    >
      {model.first > 0 && (
        <p>
          <button type="button" aria-disabled={busy} onClick={() => move('earlier')}>
            {t('run.earlier')}
          </button>
        </p>
      )}
      <Problem error={problem} />
      {model.log.length === 0 ? (
        <p class="empty">{t('run.nolog')}</p>
      ) : (
        <div
          class="scroll log"
          ref={box}
          tabIndex={0}
          role="log"
          aria-label={t('run.log')}
          onScroll={({ currentTarget: e }) => {
            atEnd.current = e.scrollTop + e.clientHeight > e.scrollHeight - 5
          }}
        >
          {model.log.map(e => (
            <p key={e.sequence} class={levels[e.level]}>
              <time dateTime={e.at} title={e.at}>
                {clock(e.at)}
              </time>
              {e.task && <span lang="en">{e.task}: </span>}
              <Said message={e.message} />
            </p>
          ))}
        </div>
      )}
      {model.upTo < model.last && (
        <p>
          <button type="button" aria-disabled={busy} onClick={() => move('later')}>
            {t('run.later')}
          </button>
        </p>
      )}
    </Section>
  )
}

export function RunPage({ context, argument: [id = ''] }: { context: Context; argument: string[] }) {
  const { model, problem, trouble, loadLog } = useRun(id)
  const [confirming, setConfirming] = useState(false)
  const { busy, problem: refused, act } = useAction()
  if (!model)
    return (
      <Page title={t('run.title')}>
        {problem === undefined ? (
          <p class="quiet" aria-busy="true">
            {t('loading')}
          </p>
        ) : (
          <Problem error={problem} />
        )}
      </Page>
    )
  const { run } = model
  const active = !ended(run)
  const mayCancel = context.may('OPERATOR') || (run.dryRun && run.requestedBy === context.caller.subject)
  return (
    <Page
      title={`${run.dryRun ? t('run.dry') : t('run.title')} · ${run.createTime ? time(run.createTime) : ''}`}
      actions={
        active &&
        mayCancel && (
          <button type="button" onClick={() => setConfirming(true)}>
            {t('run.cancel')}
          </button>
        )
      }
    >
      {confirming && (
        <Confirm
          title={t('run.cancel')}
          action={t('run.cancel')}
          busy={busy}
          problem={refused}
          onClose={() => setConfirming(false)}
          onConfirm={() =>
            act(() => call('POST', `/v1/runs/${run.id}:cancel`)).then(done => done && setConfirming(false))
          }
        >
          <p>{t('run.cancel.help')}</p>
        </Confirm>
      )}
      {trouble && (
        <div class="notice" role="status">
          <p>
            {t('run.trouble')} <span lang="en">{trouble}</span>
          </p>
        </div>
      )}
      <Problem error={problem} />
      <p role="status">
        <Badge state={run.state} /> {active ? t('run.since') : t('run.ended')}{' '}
        <Moment at={active ? (run.startTime ?? run.createTime) : run.endTime} ago={active} /> ·{' '}
        <span lang="en">{run.requestedBy}</span>
        {run.plan && (
          <>
            {' '}
            · <a href={`#/runs/${run.plan}`}>{t('run.ofplan')}</a>
          </>
        )}{' '}
        {!run.dryRun && (
          <>
            {' '}
            · {number(total(run))} {t('rows')}
          </>
        )}
      </p>
      {run.error && (
        <div class="problem">
          <p lang="en">{run.error}</p>
        </div>
      )}
      {run.dryRun && !active && <DryRunResult run={run} context={context} />}
      {!run.dryRun && model.rates.some(rate => rate > 0) && (
        <Section title={t('run.rate')}>
          <Line label={t('run.rate')} values={model.rates} show={short} />
        </Section>
      )}
      {(!run.dryRun || active) && (
        <Section title={t('run.pipeline')}>
          <Pipeline model={model} />
        </Section>
      )}
      <Space run={run} />
      <Log model={model} loadLog={loadLog} />
    </Page>
  )
}
