// What is known of a person, and how is it erased?
import { useState } from 'preact/hooks'
import { call, query, stream, type Found, type Receipt } from '../api'
import { Badge, Code, Confirm, Field, Moment, Page, Problem, Section, Show, Table, useAction, useLoad } from '../components'
import { number, t, type Key } from '../i18n'

type Variable = { application: string; workflow: string; variable: string }
type Instance = NonNullable<Found['processInstances']>[number]
type EraseEvent = { erasureId?: string; receipt?: Receipt; instanceErased?: unknown; taskErased?: unknown }

/** A match of a part of a value may be somebody else: it is offered, and not chosen. */
const sure = (instance: Instance) => (instance.reasons ?? []).some(r => r.match !== 'MATCH_PART')

export function UserData({ argument }: { argument: string[] }) {
  return argument[0] ? <OneReceipt id={argument[0]} /> : <Search />
}

function Search() {
  const [userId, name] = useState('')
  const [variables, choose] = useState<Variable[]>([])
  const [found, show] = useState<{ userId: string; variables: Variable[]; answer: Found }>()
  const receipts = useLoad(signal => call<{ receipts: Receipt[] }>('GET', query('/v1/userdata/receipts', { pageSize: 50 }), undefined, signal), [])
  const { busy, problem, act } = useAction()
  const find = () => act(async () => {
    show(undefined)
    const asked = { userId: userId.trim(), variables }
    show({ ...asked, answer: await call<Found>('POST', '/v1/userdata:find', asked) })
  })
  return (
    <Page title={t('userdata.title')} intro={t('userdata.intro')}>
      <form onSubmit={event => { event.preventDefault(); find() }}>
        <Field label={t('userdata.id')} help={t('userdata.id.help')}><input required autoComplete="off" spellcheck={false} value={userId} onInput={e => name(e.currentTarget.value)} /></Field>
        {variables.map((v, i) => (
          <div key={i} class="row">
            {(['application', 'workflow', 'variable'] as const).map(part => (
              <Field key={part} label={t(`userdata.${part}`)}><input required spellcheck={false} value={v[part]} onInput={e => choose(variables.map((other, at) => at === i ? { ...v, [part]: e.currentTarget.value } : other))} /></Field>
            ))}
            <button type="button" onClick={() => choose(variables.filter((_, at) => at !== i))}>{t('userdata.less')}</button>
          </div>
        ))}
        <p class="quiet">{t('userdata.variables')} <button type="button" onClick={() => choose([...variables, { application: '', workflow: '', variable: '' }])}>{t('userdata.more')}</button></p>
        <button type="submit" class="primary" aria-disabled={busy} disabled={userId.trim() === ''}>{t('userdata.find')}</button>
        {busy && <span role="status"> {t('userdata.searching')}</span>}
      </form>
      <Problem of={problem} />
      {found && <Result key={JSON.stringify(found.answer)} {...found} done={receipts.reload} />}
      <Section title={t('userdata.receipts')}>
        <Show of={receipts}>{({ receipts }) => (
          <Table label={t('userdata.receipts')} rows={receipts} keyOf={r => r.id!} empty={t('userdata.noreceipts')} columns={[
            { title: t('history.when'), cell: r => <a href={`#/userdata/${r.id}`}><Moment at={r.createTime} /></a> },
            { title: t('audit.who'), cell: r => r.requestedBy || '–' },
            { title: t('history.kind'), cell: r => <>{r.sweep ? t('userdata.sweep') : t('userdata.erasure')}{r.dryRun && ` (${t('history.dry')})`}</> },
            { title: t('history.state'), cell: r => <Badge state={r.succeeded ? 'SUCCEEDED' : 'FAILED'} /> },
            { title: t('rows.title'), numeric: true, cell: r => number(rowsIn(r)) },
          ]} />
        )}</Show>
      </Section>
    </Page>
  )
}

const rowsIn = (receipt: Receipt) => (receipt.rows ?? []).reduce((n, r) => n + Number(r.rows), 0)

function Result({ userId, variables, answer, done }: { userId: string; variables: Variable[]; answer: Found; done: () => void }) {
  const instances = answer.processInstances ?? [], orphans = answer.orphanTaskIds ?? []
  const [chosen, choose] = useState(() => instances.filter(sure).map(i => i.id!))
  const [preview, show] = useState<{ of: string[]; receipt: Receipt }>()
  const [asks, ask] = useState(false)
  const [steps, count] = useState(0)
  const [gone, finish] = useState<Receipt>()
  const { busy, problem, act } = useAction()
  const erase = async (dryRun: boolean) => {
    count(0)
    let receipt: Receipt | undefined
    for await (const { event } of stream<{ event: EraseEvent }>('POST', '/v1/userdata:erase', { processInstanceIds: chosen, taskIds: orphans, userId, variables, principalIds: answer.principalIds, dryRun })) {
      if (event.instanceErased || event.taskErased) count(n => n + 1)
      receipt = event.receipt ?? receipt
    }
    return receipt!
  }
  if (gone) {
    return <div class="notice good" role="status"><p>{t('userdata.gone', { rows: number(rowsIn(gone)) })} <a href={`#/userdata/${gone.id}`}>{t('userdata.receipt')}</a></p></div>
  }
  return (
    <Section title={t('userdata.found', { n: number(instances.length + orphans.length) })}>
      {(answer.notSearched ?? []).map(n => <div key={n} class="problem"><p lang="en">{n}</p></div>)}
      <Table label={t('userdata.instances')} rows={instances} keyOf={i => i.id!} empty={t('userdata.nothing')} columns={[
        { title: t('userdata.instance'), cell: i => <label class="check"><input type="checkbox" checked={chosen.includes(i.id!)} onChange={e => choose(e.currentTarget.checked ? [...chosen, i.id!] : chosen.filter(id => id !== i.id))} /><Code>{i.id}</Code></label> },
        { title: t('userdata.why'), cell: i => (i.reasons ?? []).map((r, at) => <div key={at}>{t(`reason.${(r.kind ?? '').replace('KIND_', '')}` as Key)} {r.variable && <Code>{r.variable.application} / {r.variable.workflow} / {r.variable.variable}</Code>} {r.match === 'MATCH_PART' && <span class="badge warn">{t('userdata.part')}</span>}</div>) },
      ]} />
      {orphans.length > 0 && <p>{t('userdata.orphans', { n: number(orphans.length) })} <Code>{orphans.join(', ')}</Code></p>}
      {(answer.blindSpots ?? []).length > 0 && <details><summary>{t('userdata.blind')}</summary><ul lang="en">{answer.blindSpots!.map(b => <li key={b}>{b}</li>)}</ul></details>}
      <Problem of={asks ? undefined : problem} />
      {(chosen.length > 0 || orphans.length > 0) && (
        <div class="actions">
          <button type="button" aria-disabled={busy} onClick={() => act(async () => show({ of: chosen, receipt: await erase(true) }))}>{t('userdata.preview')}</button>
          <button type="button" class="primary" aria-disabled={busy} disabled={preview?.of !== chosen} onClick={() => ask(true)}>{t('userdata.erase')}</button>
          {busy && <span role="status">{number(steps)} / {number(chosen.length + orphans.length)}</span>}
        </div>
      )}
      {preview?.of === chosen && <Counts label={t('userdata.preview')} receipt={preview.receipt} />}
      {asks && (
        <Confirm title={t('userdata.erase')} action={t('userdata.erase')} expected={userId} busy={busy} problem={problem} onClose={() => ask(false)}
          onDo={() => act(async () => { finish(await erase(false)); done() }).then(ok => ok && ask(false))}>
          <p>{t('userdata.ask', { n: number(chosen.length + orphans.length), rows: number(preview ? rowsIn(preview.receipt) : 0) })}</p>
        </Confirm>
      )}
    </Section>
  )
}

const Counts = ({ label, receipt }: { label: string; receipt: Receipt }) => (
  <Table label={label} rows={receipt.rows ?? []} keyOf={r => r.table!} columns={[
    { title: t('table'), cell: r => <Code>{r.table}</Code> },
    { title: t('rows.title'), numeric: true, cell: r => number(r.rows) },
  ]} />
)

function OneReceipt({ id }: { id: string }) {
  const loaded = useLoad(signal => call<{ receipt: Receipt }>('GET', `/v1/userdata/receipts/${encodeURIComponent(id)}`, undefined, signal), [id])
  return (
    <Page title={t('userdata.receipt')}>
      <Show of={loaded}>{({ receipt }) => (
        <>
          <dl>
            <dt>ID</dt><dd><Code>{receipt.id}</Code></dd>
            <dt>{t('history.state')}</dt><dd><Badge state={receipt.succeeded ? 'SUCCEEDED' : 'FAILED'} /></dd>
            <dt>{t('history.when')}</dt><dd><Moment at={receipt.createTime} /> – <Moment at={receipt.endTime} /></dd>
            <dt>{t('audit.who')}</dt><dd>{receipt.requestedBy || '–'}</dd>
            <dt>{t('userdata.hash')}</dt><dd><Code>{receipt.userIdHash || '–'}</Code></dd>
            <dt>{t('userdata.instances')}</dt><dd><Code>{(receipt.processInstanceIds ?? []).join(', ') || '–'}</Code></dd>
            <dt>{t('userdata.files')}</dt><dd><Code>{(receipt.files ?? []).join(', ') || '–'}</Code></dd>
          </dl>
          {(receipt.problems ?? []).map(p => <div key={p} class="problem"><p lang="en">{p}</p></div>)}
          <Counts label={t('userdata.receipt')} receipt={receipt} />
        </>
      )}</Show>
    </Page>
  )
}
