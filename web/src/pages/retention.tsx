// The retention options, and the effect of changing them.
import { useState } from 'preact/hooks'
import { call, query, type Options, type OptionsAnswer, type Run } from '../api'
import {
  Code,
  isStale,
  Moment,
  Page,
  Problem,
  SaveProblem,
  Section,
  Show,
  Table,
  useAction,
  useLoad,
} from '../components'
import { follow, start } from '../follow'
import { maybe, number, percent, t, type Key } from '../i18n'
import type { Context } from '../context'
import { Purges } from './purges'

/** Returns the name of a delay: in the user's language, or made of its field. */
const nameOf = (field: string) =>
  maybe(`delay.${field}`) ?? field.replace(/(PurgeDelay)?Days$/, '').replace(/[A-Z]/g, c => ` ${c.toLowerCase()}`)
const optimizations = ['VACUUM_ANALYZE', 'ANALYZE', 'NONE'].map(name => `STORAGE_OPTIMIZATION_${name}`)

/** The unsaved changes; null resets an option to its default. */
type Changes = { [name: string]: number | string | null }
type Effect = { changes: string; run: Run }

const years = 3 * 365

const hasPurges = ({ may, server }: Context) => may('ADMIN') && server.userData === true

/** Whether the page has anything to show: the options are Campaign's. */
export const hasRetention = (context: Context) => context.server.campaign === true || hasPurges(context)

export function Retention({ context }: { context: Context }) {
  return (
    <Page title={t('retention.title')} intro={t('retention.intro')}>
      {context.server.campaign && <Delays context={context} />}
      {hasPurges(context) && <Purges />}
    </Page>
  )
}

function Delays({ context }: { context: Context }) {
  const loaded = useLoad(signal => call<OptionsAnswer>('GET', '/v1/options', undefined, signal), [])
  return (
    <Show loaded={loaded}>
      {answer => <Form key={answer.etag} context={context} answer={answer} reload={loaded.reload} />}
    </Show>
  )
}

function Form({ context, answer, reload }: { context: Context; answer: OptionsAnswer; reload: () => void }) {
  const [changes, setChanges] = useState<Changes>({})
  const [effect, setEffect] = useState<Effect>()
  const saving = useAction(),
    calculating = useAction()
  const [progress, setProgress] = useState(0)
  const options = answer.options as Record<string, number | string | undefined>,
    defaults = answer.defaults as Record<string, number | string>
  const stored = (answer.customized ?? '').split(',')
  const delays = Object.keys(defaults).filter(name => name.endsWith('Days'))
  const value = (name: string) =>
    (name in changes ? (changes[name] ?? defaults[name]) : options[name]) as number | string | undefined
  const change = (name: string, to: number | string | null) => {
    const next = { ...changes, [name]: to }
    if (to === null ? !stored.includes(name) : stored.includes(name) && to === options[name]) delete next[name]
    setChanges(next)
  }
  const key = JSON.stringify(changes),
    changed = Object.keys(changes)
  const calculate = () =>
    calculating.act(async () => {
      const whatIf = Object.fromEntries(changed.map(name => [name, changes[name] ?? defaults[name]])) as Options
      const id = await start({ dryRun: true, whatIf })
      setProgress(0)
      await ended(id, setProgress)
      setEffect({ changes: key, run: (await call<{ run: Run }>('GET', `/v1/runs/${id}`)).run })
    })
  const save = () =>
    saving.act(async () => {
      await call('PATCH', query('/v1/options', { etag: answer.etag }), changes)
      reload()
    })
  return (
    <form
      onSubmit={event => {
        event.preventDefault()
        save()
      }}
    >
      {(answer.invalid ?? []).map(invalid => (
        <div key={invalid.option} class="problem">
          <p lang="en">
            {invalid.option}: {invalid.storedValue}: {invalid.reason}
          </p>
        </div>
      ))}
      {delays.map(name => (
        <div key={name} class={`delay ${name in changes ? 'changed' : ''}`}>
          <div>
            <strong id={name}>{nameOf(name)}</strong> <Code>{answer.names![name]}</Code>
            <p class="quiet">
              {maybe(`delay.${name}.help`)} {t('retention.default', { days: number(defaults[name]) })}
            </p>
          </div>
          <input
            type="range"
            aria-labelledby={name}
            min={1}
            max={years}
            value={value(name)}
            disabled={!context.may('ADMIN')}
            onInput={e => change(name, Number(e.currentTarget.value))}
          />
          <span class="value">
            <input
              type="number"
              aria-labelledby={name}
              min={1}
              required
              disabled={!context.may('ADMIN')}
              value={value(name)}
              onInput={e => e.currentTarget.value !== '' && change(name, Number(e.currentTarget.value))}
            />{' '}
            {t('days')}
            {context.may('ADMIN') && (
              <button
                type="button"
                disabled={value(name) === defaults[name] && !stored.includes(name)}
                aria-label={`${t('retention.reset')}: ${nameOf(name)}`}
                title={t('retention.reset')}
                onClick={() => change(name, null)}
              >
                ↺
              </button>
            )}
          </span>
        </div>
      ))}
      <div class={`delay ${'storageOptimization' in changes ? 'changed' : ''}`}>
        <div>
          <strong id="storage">{t('retention.storage')}</strong>
          <p class="quiet">{t('retention.storage.help')}</p>
        </div>
        <span />
        <select
          aria-labelledby="storage"
          disabled={!context.may('ADMIN')}
          value={value('storageOptimization')}
          onChange={e => change('storageOptimization', e.currentTarget.value)}
        >
          {optimizations.map(o => (
            <option key={o} value={o}>
              {t(`storage.${o.replace('STORAGE_OPTIMIZATION_', '')}` as Key)}
            </option>
          ))}
        </select>
      </div>
      <p class="quiet">
        {t('retention.last')} <Moment at={answer.options?.lastCleanupTime} />
      </p>
      {effect && <Effects effect={effect} current={effect.changes === key} />}
      {changed.length > 0 && (
        <div class="sticky">
          <Problem error={calculating.problem} />
          <SaveProblem error={saving.problem} reload={reload} />
          <div class="actions">
            <span>{t('retention.changed', { n: number(changed.length) })}</span>
            <button type="button" aria-disabled={calculating.busy} onClick={calculate}>
              {t('retention.effect')}
            </button>
            <button type="submit" class="primary" aria-disabled={saving.busy} disabled={isStale(saving.problem)}>
              {t('action.save')}
            </button>
            <button type="button" onClick={() => setChanges({})}>
              {t('action.undo')}
            </button>
            {calculating.busy && (
              <>
                <progress aria-label={t('retention.effect')} max={1} value={progress} />
                <span role="status">{percent(progress)}</span>
              </>
            )}
          </div>
        </div>
      )}
    </form>
  )
}

/** Waits until a run has ended, and reports the share of its tasks that are done. */
const ended = (id: string, progress: (share: number) => void) =>
  new Promise<void>((resolve, reject) => {
    const stop = new AbortController()
    follow(
      id,
      0,
      {
        event: event => {
          if (event.taskStarted) progress(((event.taskStarted.position ?? 1) - 1) / (event.taskStarted.taskCount ?? 1))
          if (event.runFinished) {
            stop.abort()
            const run = event.runFinished.run
            if (run?.state === 'RUN_STATE_SUCCEEDED') resolve()
            else reject(new Error(run?.error || run?.state))
          }
        },
        rewind: () => {},
        trouble: () => {},
      },
      stop.signal,
    )
  })

/** Compares the rows to delete with the changed options and with the current ones. */
function Effects({ effect, current }: { effect: Effect; current: boolean }) {
  const lines = (effect.run.results ?? [])
    .flatMap(({ task, preview }) => (preview ?? []).map(p => ({ ...p, task })))
    .filter(l => l.baselineRows !== undefined && l.baselineRows !== null && l.baselineRows !== l.rows)
  return (
    <Section title={t('retention.effects')} actions={<a href={`#/runs/${effect.run.id}`}>{t('retention.whole')}</a>}>
      {!current && (
        <div class="notice">
          <p>{t('retention.outdated')}</p>
        </div>
      )}
      <Table
        label={t('retention.effects')}
        rows={lines}
        keyOf={l => `${l.task} ${l.action} ${l.table}`}
        empty={t('retention.same')}
        columns={[
          { title: t('table'), cell: l => <Code>{l.table}</Code> },
          { title: t('run.task'), cell: l => <span lang="en">{l.task}</span> },
          { title: t('preview.now'), numeric: true, cell: l => number(l.baselineRows ?? undefined) },
          { title: t('retention.then'), numeric: true, cell: l => number(l.rows) },
          {
            title: t('retention.difference'),
            numeric: true,
            cell: l => {
              const more = Number(l.rows) - Number(l.baselineRows)
              return `${more > 0 ? '+' : '−'}${number(Math.abs(more))}`
            },
          },
        ]}
      />
    </Section>
  )
}
