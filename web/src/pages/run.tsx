// A run: its tasks, progress, log and result, updated live while it is active.
import { useEffect, useReducer, useRef, useState } from 'preact/hooks'
import { call, type Run } from '../api'
import { Line } from '../chart'
import { Badge, Confirm, Moment, Page, Problem, Section, useAction } from '../components'
import { between, follow } from '../follow'
import { clock, number, short, t, time } from '../i18n'
import type { Context } from '../context'
import { Model } from '../model'
import { ratesOf } from '../rates'
import { awaitsWindow, ended, isPaused, isRestore, secondsOf, stateOf, total } from '../runs'
import { DryRunResult } from './dryrun'
import { Log } from './log'
import { PaceButtons } from './pace'
import { Overall, Pipeline } from './pipeline'
import { Space } from './space'
import { Undo } from './trash'

/** Loads a run and follows its events. trouble is the current error of the connection. */
function useRun(id: string) {
  const model = useRef<Model | undefined>(undefined)
  const [problem, setProblem] = useState<unknown>()
  const [trouble, setTrouble] = useState('')
  const [, redraw] = useReducer((n: number) => n + 1, 0)
  const change = (run: Run) => {
    model.current!.change(run)
    redraw(0)
  }
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
    // No event says that a replica has stopped: a run that has none for a while is asked for.
    let known = 0
    const timer = setInterval(() => {
      const m = model.current
      const silent = m?.last === known
      known = m?.last ?? 0
      if (!m || !silent || ended(m.run) || document.hidden) return
      call<{ run: Run }>('GET', `/v1/runs/${m.run.id}`, undefined, closed.signal).then(
        ({ run }) => change(run),
        () => {}, // the stream shows the trouble
      )
    }, 5000)
    return () => {
      clearInterval(timer)
      closed.abort()
      cancelAnimationFrame(frame)
    }
  }, [id])
  const loadLog = async (direction: 'earlier' | 'later') => {
    await model.current![direction]((after, upTo) => between(id, after, upTo))
    redraw(0)
  }
  return { model: model.current, problem, trouble, loadLog, change }
}

/** Returns since when a run is in its state; of an interrupted one, when its replica last wrote an event. */
const timeOf = ({ run, now }: Model) =>
  ended(run)
    ? run.endTime
    : isPaused(run)
      ? run.pauseTime
      : run.interrupted
        ? new Date(now).toISOString()
        : (run.startTime ?? run.createTime)

export function RunPage({ context, argument: [id = ''] }: { context: Context; argument: string[] }) {
  const { model, problem, trouble, loadLog, change } = useRun(id)
  const [confirming, setConfirming] = useState(false)
  const { busy, problem: refused, act } = useAction()
  const changing = useAction()
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
  const rates = run.dryRun ? undefined : ratesOf(run, model.samples, model.now)
  const paused = isPaused(run)
  const mayChange = active && context.may('OPERATOR')
  const send = (method: string, body?: unknown) =>
    changing.act(async () => {
      change((await call<{ run: Run }>('POST', `/v1/runs/${run.id}:${method}`, body)).run)
    })
  const mayCancel = context.may('OPERATOR') || (run.dryRun && run.requestedBy === context.caller.subject)
  return (
    <Page
      title={`${t(run.dryRun ? 'run.dry' : isRestore(run) ? 'run.restore' : 'run.title')} · ${run.createTime ? time(run.createTime) : ''}`}
      actions={
        active && (
          <>
            {mayChange && (
              <button type="button" aria-disabled={changing.busy} onClick={() => send(paused ? 'resume' : 'pause')}>
                {paused ? t('run.resume') : t('run.pause')}
              </button>
            )}
            {mayChange && awaitsWindow(run) && (
              <button type="button" aria-disabled={changing.busy} onClick={() => send('pause')}>
                {t('run.pause')}
              </button>
            )}
            {mayCancel && (
              <button type="button" onClick={() => setConfirming(true)}>
                {t('run.cancel')}
              </button>
            )}
          </>
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
          <p>
            {t('run.cancel.help')}{' '}
            {t(isRestore(run) ? 'run.cancel.restore' : secondsOf(run.undo) > 0 ? 'run.cancel.undo' : 'run.cancel.gone')}
          </p>
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
      <Problem error={changing.problem} />
      {run.interrupted && (
        <div class="notice">
          <p>{t('run.interrupted')}</p>
        </div>
      )}
      <p>
        <span role="status">
          <Badge state={stateOf(run)} />{' '}
          {paused && (awaitsWindow(run) ? t('run.outside') : t('run.pausedby', { caller: run.pausedBy ?? '' }))}
        </span>{' '}
        {active ? t('run.since') : t('run.ended')} <Moment at={timeOf(model)} ago={active} /> ·{' '}
        {run.windowOpenTime && (
          <>
            {t('run.opens')} <Moment at={run.windowOpenTime} /> ·{' '}
          </>
        )}
        {run.waitsForRunId && (
          <>
            <a href={`#/runs/${run.waitsForRunId}`}>{t('run.waitsfor')}</a> ·{' '}
          </>
        )}
        <span lang="en">{run.requestedBy}</span>
        {run.plan && (
          <>
            {' '}
            · <a href={`#/runs/${run.plan}`}>{t('run.ofplan')}</a>
          </>
        )}
        {isRestore(run) && (
          <>
            {' '}
            · <a href={`#/runs/${run.restoredRunId}`}>{t('run.restores')}</a>
          </>
        )}{' '}
        {!run.dryRun && <> · {t(isRestore(run) ? 'rows.restored' : 'rows', { n: number(total(run)) })}</>}
      </p>
      {run.error && (
        <div class="problem">
          <p lang="en">{run.error}</p>
        </div>
      )}
      {!active && !run.dryRun && secondsOf(run.undo) > 0 && <Undo run={run} context={context} />}
      {run.dryRun && !active && <DryRunResult run={run} context={context} />}
      {mayChange && !run.dryRun && (
        <PaceButtons pace={run.pace} busy={changing.busy} onChange={pace => send('pace', { pace })} />
      )}
      {active && run.startTime && <Overall model={model} />}
      {rates && (
        <Section title={t('run.rate')}>
          <Line label={t('run.rate')} {...rates} show={short} tick={at => clock(new Date(at).toISOString())} />
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
