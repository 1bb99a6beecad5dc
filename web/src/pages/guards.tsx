// The tripped guards and the guards' limits.
import { useState } from 'preact/hooks'
import { call, query, type Guards, type GuardsAnswer } from '../api'
import {
  Badge,
  Code,
  Field,
  isStale,
  Moment,
  Page,
  SaveProblem,
  Section,
  Show,
  Table,
  useAction,
  useLoad,
} from '../components'
import { number, t, type Key } from '../i18n'
import type { Context } from '../context'
import { nameOf, secondsOf } from '../runs'
import { tripOf } from '../trips'

/** The limits. Durations are shown in a unit, given in seconds. */
const limits = [
  { name: 'minRows' },
  { name: 'minProcessInstances' },
  { name: 'maxSharePercent' },
  { name: 'maxGrowth' },
  { name: 'maxTables' },
  { name: 'maxDropPercent' },
  { name: 'maxClockDifference', unit: 60 },
  { name: 'maxIdle', unit: 86400 },
] as const

/** The guards that are on or off. */
const switches = ['cutoff', 'first'] as const

/** Whether a limit is about something that the database does not have. */
const isForeign = (name: string, { server }: Context) =>
  (['maxTables', 'maxDropPercent', 'maxIdle'].includes(name) && !server.campaign) ||
  (name === 'minProcessInstances' && !server.userData)

type Values = Record<string, string | number | boolean | null | undefined>
const shown = (values: Values, name: string, unit?: number) => {
  const value = values[name]
  return value === undefined || value === null ? '' : unit ? String(secondsOf(String(value)) / unit) : String(value)
}

export function GuardsPage({ context }: { context: Context }) {
  const loaded = useLoad(signal => call<GuardsAnswer>('GET', '/v1/guards', undefined, signal), [])
  return (
    <Page title={t('guards.title')} intro={t('guards.intro')}>
      <Show loaded={loaded}>
        {answer => (
          <>
            <Section title={t('guards.tripped')}>
              <Table
                label={t('guards.tripped')}
                rows={answer.refusals ?? []}
                keyOf={l => `${l.task} ${l.guard?.guard} ${l.guard?.table}`}
                empty={t('guards.quiet')}
                columns={[
                  {
                    title: t('guards.guard'),
                    cell: l => (
                      <>
                        <span lang="en">{nameOf(l.guard?.guard)}</span> <Badge state="TRIPPED" />
                        {l.guard && <div class="quiet">{tripOf(l.guard)}</div>}
                      </>
                    ),
                  },
                  { title: t('run.task'), cell: l => <span lang="en">{l.task}</span> },
                  { title: t('table'), cell: l => <Code>{l.guard?.table}</Code> },
                  {
                    title: t('guards.number'),
                    numeric: true,
                    cell: l =>
                      l.guard?.atLeast
                        ? t('guards.atLeast', { number: number(l.guard.number) })
                        : number(l.guard?.number),
                  },
                  {
                    title: t('guards.limit'),
                    numeric: true,
                    cell: l => (l.guard?.guard === 'GUARD_KIND_POLICY' ? '' : number(l.guard?.limit)),
                  },
                  {
                    title: t('guards.when'),
                    cell: l => (
                      <a href={`#/runs/${l.runId}`}>
                        <Moment at={l.tripTime} />
                      </a>
                    ),
                  },
                ]}
              />
              {(answer.refusals ?? []).length > 0 && (
                <p>
                  {t('guards.pass')} <a href="#/preview">{t('preview.title')}</a>
                </p>
              )}
            </Section>
            <Section title={t('guards.limits')}>
              <Limits key={answer.etag} context={context} answer={answer} reload={loaded.reload} />
            </Section>
          </>
        )}
      </Show>
    </Page>
  )
}

function Limits({ context, answer, reload }: { context: Context; answer: GuardsAnswer; reload: () => void }) {
  const guards: Guards = answer.guards ?? {},
    defaults: Guards = answer.defaults ?? {}
  const [draft, setDraft] = useState(() =>
    Object.fromEntries(limits.map(l => [l.name, shown(guards as Values, l.name, 'unit' in l ? l.unit : undefined)])),
  )
  const [on, setOn] = useState(() => Object.fromEntries(switches.map(name => [name, guards[name] ?? true])))
  const offered = limits.filter(l => !isForeign(l.name, context))
  const { busy, problem, act } = useAction()
  const save = () =>
    act(async () => {
      const values: Values = { ...on }
      for (const l of limits)
        if (draft[l.name] !== '')
          values[l.name] = 'unit' in l ? `${Math.round(Number(draft[l.name]) * l.unit)}s` : Number(draft[l.name])
      await call('PUT', query('/v1/guards', { etag: answer.etag }), values)
      reload()
    })
  return (
    <form
      onSubmit={event => {
        event.preventDefault()
        save()
      }}
    >
      {offered.map(l => (
        <Field
          key={l.name}
          label={t(`guard.${l.name}` as Key)}
          help={`${t(`guard.${l.name}.help` as Key)} ${t('guards.default', { n: number(shown(defaults as Values, l.name, 'unit' in l ? l.unit : undefined)) })}`}
        >
          <input
            type="number"
            min={0}
            step="any"
            value={draft[l.name]}
            onInput={e => setDraft({ ...draft, [l.name]: e.currentTarget.value })}
          />
        </Field>
      ))}
      {switches.map(name => (
        <label class="check" key={name}>
          <input type="checkbox" checked={on[name]} onChange={e => setOn({ ...on, [name]: e.currentTarget.checked })} />
          {t(`guard.${name}`)}
        </label>
      ))}
      <SaveProblem error={problem} reload={reload} />
      <button type="submit" class="primary" aria-disabled={busy} disabled={isStale(problem)}>
        {t('action.save')}
      </button>
    </form>
  )
}
