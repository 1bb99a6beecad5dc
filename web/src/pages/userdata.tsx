// Finds and erases a person's data.
import { useState } from 'preact/hooks'
import { call, query, stream, type Found, type Receipt } from '../api'
import {
  Badge,
  Code,
  Confirm,
  Field,
  Moment,
  Page,
  Problem,
  Section,
  Show,
  Table,
  useAction,
  useLoad,
} from '../components'
import { number, t, type Key } from '../i18n'
import { Counts, OneReceipt, rowsIn, stateOf } from './receipt'
import { Variables, type Variable } from './variables'

type Instance = NonNullable<Found['processInstances']>[number]
type EraseEvent = { erasureId?: string; receipt?: Receipt; instanceErased?: unknown; taskErased?: unknown }

/** Reports whether the instance is certainly the person's. A partial match may be another person's: not preselected. */
const sure = (instance: Instance) => (instance.reasons ?? []).some(r => r.match !== 'MATCH_PART')
const running = (instance: Instance) => ![0, 2, 4].includes(instance.status ?? 0)

export function UserData({ argument }: { argument: string[] }) {
  return argument[0] ? <OneReceipt id={argument[0]} /> : <Search />
}

function Search() {
  const [userId, setUserId] = useState('')
  const [variables, setVariables] = useState<Variable[]>([])
  const [found, setFound] = useState<{ userId: string; variables: Variable[]; answer: Found }>()
  const receipts = useLoad(
    signal => call<{ receipts: Receipt[] }>('GET', query('/v1/userdata/receipts', { pageSize: 50 }), undefined, signal),
    [],
  )
  const { busy, problem, act } = useAction()
  const find = () =>
    act(async () => {
      setFound(undefined)
      const request = { userId: userId.trim(), variables }
      setFound({ ...request, answer: await call<Found>('POST', '/v1/userdata:find', request) })
    })
  return (
    <Page title={t('userdata.title')} intro={t('userdata.intro')}>
      <form
        onSubmit={event => {
          event.preventDefault()
          find()
        }}
      >
        <Field label={t('userdata.id')} help={t('userdata.id.help')}>
          <input
            required
            autoComplete="off"
            spellcheck={false}
            value={userId}
            onInput={e => setUserId(e.currentTarget.value)}
          />
        </Field>
        <Variables variables={variables} choose={setVariables} />
        <button type="submit" class="primary" aria-disabled={busy} disabled={userId.trim() === ''}>
          {t('userdata.find')}
        </button>
        {busy && <span role="status"> {t('userdata.searching')}</span>}
      </form>
      <Problem error={problem} />
      {found && <Result key={JSON.stringify(found.answer)} {...found} done={receipts.reload} />}
      <Section title={t('userdata.receipts')}>
        <Show loaded={receipts}>
          {({ receipts }) => (
            <Table
              label={t('userdata.receipts')}
              rows={receipts}
              keyOf={r => r.id!}
              empty={t('userdata.noreceipts')}
              columns={[
                {
                  title: t('history.when'),
                  cell: r => (
                    <a href={`#/userdata/${r.id}`}>
                      <Moment at={r.createTime} />
                    </a>
                  ),
                },
                { title: t('audit.who'), cell: r => r.requestedBy || '–' },
                {
                  title: t('history.kind'),
                  cell: r =>
                    r.purge ? <Code>forms/{r.purge}</Code> : r.sweep ? t('userdata.sweep') : t('userdata.erasure'),
                },
                { title: t('history.state'), cell: r => <Badge state={stateOf(r)} /> },
                { title: t('rows.title'), numeric: true, cell: r => number(rowsIn(r)) },
              ]}
            />
          )}
        </Show>
      </Section>
    </Page>
  )
}

function Result({
  userId,
  variables,
  answer,
  done,
}: {
  userId: string
  variables: Variable[]
  answer: Found
  done: () => void
}) {
  const instances = answer.processInstances ?? [],
    orphans = answer.orphanTaskIds ?? [],
    principals = answer.principalIds ?? []
  const several = principals.length > 1
  const all = instances.filter(sure).map(i => i.id!)
  const [chosen, setChosen] = useState(all)
  const [selectedPrincipals, setSelectedPrincipals] = useState(several ? [] : principals)
  const [preview, setPreview] = useState<{ request: string; receipt: Receipt }>()
  const [confirming, setConfirming] = useState(false)
  const [steps, setSteps] = useState(0)
  const [erased, setErased] = useState<Receipt>()
  const { busy, problem, act } = useAction()
  // Everything found is erased by the user ID, whose hash is stored in the receipt; a selection is erased by its IDs.
  const whole = several || (chosen.length === all.length && all.every(id => chosen.includes(id)))
  const request = whole
    ? { userId, variables, principalIds: selectedPrincipals }
    : { processInstanceIds: chosen, taskIds: orphans }
  const current = preview?.request === JSON.stringify(request) ? preview.receipt : undefined
  const erase = async (dryRun: boolean) => {
    setSteps(0)
    let receipt: Receipt | undefined
    for await (const { event } of stream<{ event: EraseEvent }>('POST', '/v1/userdata:erase', { ...request, dryRun })) {
      if (event.instanceErased || event.taskErased) setSteps(n => n + 1)
      receipt = event.receipt ?? receipt
    }
    return receipt!
  }
  const toggle = (ids: string[], id: string, on: boolean) => (on ? [...ids, id] : ids.filter(other => other !== id))
  if (erased) {
    return (
      <div class="notice good" role="status">
        <p>
          {t('userdata.gone', { rows: number(rowsIn(erased)) })}{' '}
          <a href={`#/userdata/${erased.id}`}>{t('userdata.receipt')}</a>
        </p>
      </div>
    )
  }
  return (
    <Section title={t('userdata.found', { n: number(instances.length + orphans.length) })}>
      {(answer.notSearched ?? []).map(n => (
        <div key={n} class="problem">
          <p lang="en">{n}</p>
        </div>
      ))}
      {several && (
        <fieldset class="notice">
          <legend>{t('userdata.several')}</legend>
          {principals.map(p => (
            <label key={p} class="check">
              <input
                type="checkbox"
                checked={selectedPrincipals.includes(p)}
                onChange={e => setSelectedPrincipals(toggle(selectedPrincipals, p, e.currentTarget.checked))}
              />
              <Code>{p}</Code>
            </label>
          ))}
        </fieldset>
      )}
      <Table
        label={t('userdata.instances')}
        rows={instances}
        keyOf={i => i.id!}
        empty={t('userdata.nothing')}
        columns={[
          {
            title: t('userdata.instance'),
            cell: i =>
              several ? (
                <Code>{i.id}</Code>
              ) : (
                <label class="check">
                  <input
                    type="checkbox"
                    checked={chosen.includes(i.id!)}
                    onChange={e => setChosen(toggle(chosen, i.id!, e.currentTarget.checked))}
                  />
                  <Code>{i.id}</Code>
                </label>
              ),
          },
          { title: t('history.state'), cell: i => running(i) && <Badge state="RUNNING" /> },
          {
            title: t('userdata.why'),
            cell: i =>
              (i.reasons ?? []).map((r, at) => (
                <div key={at}>
                  {t(`reason.${(r.kind ?? '').replace('KIND_', '')}` as Key)}{' '}
                  {r.variable && (
                    <Code>
                      {r.variable.application} / {r.variable.workflow} / {r.variable.variable}
                    </Code>
                  )}{' '}
                  {r.match === 'MATCH_PART' && <span class="badge warn">{t('userdata.part')}</span>}
                </div>
              )),
          },
        ]}
      />
      {orphans.length > 0 && (
        <p>
          {t('userdata.orphans', { n: number(orphans.length) })} <Code>{orphans.join(', ')}</Code>
        </p>
      )}
      {(answer.blindSpots ?? []).length > 0 && (
        <details>
          <summary>{t('userdata.blind')}</summary>
          <ul lang="en">
            {answer.blindSpots!.map(b => (
              <li key={b}>{b}</li>
            ))}
          </ul>
        </details>
      )}
      <Problem error={confirming ? undefined : problem} />
      {(chosen.length > 0 || orphans.length > 0) && (
        <div class="actions">
          <button
            type="button"
            aria-disabled={busy}
            disabled={several && selectedPrincipals.length === 0}
            onClick={() =>
              act(async () => setPreview({ request: JSON.stringify(request), receipt: await erase(true) }))
            }
          >
            {t('userdata.preview')}
          </button>
          <button
            type="button"
            class="primary"
            aria-disabled={busy}
            disabled={!current}
            onClick={() => setConfirming(true)}
          >
            {t('userdata.erase')}
          </button>
          {busy && (
            <span role="status">
              {number(steps)} / {number(chosen.length + orphans.length)}
            </span>
          )}
        </div>
      )}
      {current && <Counts label={t('userdata.preview')} receipt={current} />}
      {current && confirming && (
        <Confirm
          title={t('userdata.erase')}
          action={t('userdata.erase')}
          expected={userId}
          busy={busy}
          problem={problem}
          onClose={() => setConfirming(false)}
          onConfirm={() => act(() => erase(false).then(setErased).finally(done))}
        >
          <p>
            {t('userdata.ask', {
              n: number((current.processInstanceIds ?? []).length + (current.taskIds ?? []).length),
              rows: number(rowsIn(current)),
            })}
          </p>
        </Confirm>
      )}
    </Section>
  )
}
