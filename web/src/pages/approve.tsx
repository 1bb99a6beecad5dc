// Runs a saved plan after confirmation, unless that is no longer possible.
import { useState } from 'preact/hooks'
import { call, query, type Run, type TrippedGuard } from '../api'
import { Code, Confirm, Field, Show, useAction, useLoad } from '../components'
import { number, t } from '../i18n'
import type { Context } from '../context'
import { start } from '../follow'
import { keyOfGuard, laterRun } from '../preview'
import { secondsOf } from '../runs'
import { tripOf } from '../trips'
import { PaceSelect } from './pace'
import { undoOf, UndoField } from './undo'

/** Names the database that a run would change. */
export const Target = ({ context: { server } }: { context: Context }) => (
  <p>
    {t('preview.where')} <Code>{server.database}</Code> · <Code>{server.databaseHost}</Code>
    {server.instance && (
      <>
        {' '}
        · {t('about.instance')} <Code>{server.instance}</Code>
      </>
    )}
  </p>
)

type Props = { run: Run; context: Context; guards: TrippedGuard[]; rows: string; tables: string }

/** Offers to run a plan to who may do that, or says why it cannot be run any more. */
export function Approve(props: Props) {
  const { run, context, guards } = props
  const loaded = useLoad(
    signal => call<{ runs: Run[] }>('GET', query('/v1/runs', { dryRun: false, pageSize: 50 }), undefined, signal),
    [run.id],
  )
  const again = <a href="#/preview">{t('preview.again')}</a>
  return (
    <Show loaded={loaded}>
      {({ runs }) => {
        const later = laterRun(run, runs)
        if (later)
          return (
            <span>
              <a href={`#/runs/${later.id}`}>{later.plan === run.id ? t('preview.ran') : t('preview.overtaken')}</a> ·{' '}
              {again}
            </span>
          )
        if (Date.now() - Date.parse(run.referenceTime!) > 1000 * secondsOf(context.server.planMaxAge))
          return (
            <span>
              {t('preview.old')} {again}
            </span>
          )
        return context.may(guards.length > 0 ? 'ADMIN' : 'OPERATOR') && <RunPlan {...props} />
      }}
    </Show>
  )
}

/** Runs the plan. The number of each guard that would trip must be typed in. */
function RunPlan({ run, context, guards, rows, tables }: Props) {
  const [confirming, setConfirming] = useState(false)
  const [pace, setPace] = useState('')
  const [undo, setUndo] = useState('')
  const [typed, setTyped] = useState<Record<string, string>>({})
  const { busy, problem, act } = useAction()
  const confirmed = guards.every(g => typed[keyOfGuard(g)]?.replace(/\D/g, '') === g.number)
  const acceptGuards = guards.map(({ guard, table, number }) => ({ guard, table, number }))
  const runPlan = () =>
    act(async () => {
      location.hash = `#/runs/${await start({
        plan: run.id,
        continueOnError: true,
        acceptGuards,
        pace: pace || undefined,
        undo: undoOf(undo),
      })}`
    })
  return (
    <>
      <button type="button" class="primary" onClick={() => setConfirming(true)}>
        {t('preview.run')}
      </button>
      {confirming && (
        <Confirm
          title={t('preview.run')}
          action={t('preview.run')}
          ready={confirmed}
          busy={busy}
          problem={problem}
          onConfirm={runPlan}
          onClose={() => setConfirming(false)}
        >
          <Target context={context} />
          <p>{t('preview.ask', { rows, tables })}</p>
          <PaceSelect value={pace} unset={t('pace.server')} onChange={setPace} />
          <UndoField hours={undo} usual={secondsOf(run.undo)} policies={undo === ''} onChange={setUndo} />
          {guards.map(g => (
            <div key={keyOfGuard(g)} class="notice">
              <p>
                <Code>{g.table}</Code>: {tripOf(g)}
              </p>
              <Field label={t('preview.accept', { number: number(g.number) })}>
                <input
                  inputMode="numeric"
                  autoComplete="off"
                  value={typed[keyOfGuard(g)] ?? ''}
                  onInput={e => setTyped({ ...typed, [keyOfGuard(g)]: e.currentTarget.value })}
                />
              </Field>
            </div>
          ))}
        </Confirm>
      )}
    </>
  )
}
