// What runs with undo have deleted: it comes back, or is deleted for good, run by run.
import { useState } from 'preact/hooks'
import { call, type Run, type TrashAnswer, type TrashEntry } from '../api'
import {
  Bar,
  Code,
  Confirm,
  Field,
  Moment,
  Page,
  PagedList,
  Problem,
  Section,
  Table,
  useAction,
  useLoad,
} from '../components'
import { bytes, number, period, t, type Key } from '../i18n'
import type { Context } from '../context'
import { start } from '../follow'
import { secondsOf } from '../runs'
import { by, listTrash, rowsIn, trashOf } from '../trash'
import { Target } from './approve'

export function Trash({ context }: { context: Context }) {
  const [usage, setUsage] = useState<TrashAnswer>()
  const [asked, setAsked] = useState<{ run: string; purge: boolean }>()
  const [purged, setPurged] = useState<number>()
  const [round, setRound] = useState(0)
  const usual = secondsOf(context.server.undo)
  const load = async (pageToken?: string, signal?: AbortSignal) => {
    const page = await listTrash({ pageSize: 100, pageToken }, signal)
    setUsage(page)
    return { rows: page.entries!, next: page.nextPageToken! }
  }
  return (
    <Page title={t('trash.title')} intro={t('trash.intro')}>
      <p>
        {usual > 0 ? (
          t('trash.default', { period: period(usual) })
        ) : (
          <>
            {t('trash.off')} <code>cleanupd serve --undo 72h</code>
          </>
        )}
      </p>
      {usage && (
        <p>
          {t('trash.usage', { size: bytes(usage.bytes), most: bytes(usage.maxBytes) })}{' '}
          <Bar share={Number(usage.bytes) / Number(usage.maxBytes)} label={t('trash.title')} />
        </p>
      )}
      {purged !== undefined && (
        <div class="notice good" role="status">
          <p>{t('trash.purged', { n: number(purged) })}</p>
        </div>
      )}
      <PagedList load={load} dependencies={[round]}>
        {entries =>
          entries.length === 0 ? (
            <p class="empty">{t('trash.empty')}</p>
          ) : (
            by('run', entries).map(([run, entries]) => (
              <Section
                key={run}
                title={
                  <a href={`#/runs/${run}`}>
                    {t('run.title')} · <Moment at={entries.at(-1)!.createTime} />
                  </a>
                }
                actions={
                  context.may('ADMIN') &&
                  entries.every(e => e.expireTime) && (
                    <>
                      <button type="button" onClick={() => setAsked({ run, purge: false })}>
                        {t('trash.restore')}
                      </button>
                      <button type="button" onClick={() => setAsked({ run, purge: true })}>
                        {t('trash.purge')}
                      </button>
                    </>
                  )
                }
              >
                <Entries label={`${t('trash.title')} ${run}`} entries={entries} />
              </Section>
            ))
          )
        }
      </PagedList>
      {asked && (
        <Ask
          {...asked}
          context={context}
          onPurged={setPurged}
          onClose={() => {
            setAsked(undefined)
            setRound(round + 1)
          }}
        />
      )}
    </Page>
  )
}

const Entries = ({ label, entries }: { label: string; entries: TrashEntry[] }) => (
  <Table
    label={label}
    rows={entries}
    keyOf={e => `${e.task} ${e.table} ${e.kind} ${e.createTime}`}
    columns={[
      { title: t('run.task'), cell: e => <span lang="en">{e.task}</span> },
      { title: t('table'), cell: e => <Code>{e.table}</Code> },
      { title: t('history.kind'), cell: e => t(`trash.${(e.kind ?? '').replace('TRASH_KIND_', '')}` as Key) },
      { title: t('tables.rows'), numeric: true, cell: e => number(e.rows) },
      { title: t('tables.size'), numeric: true, cell: e => bytes(e.bytes) },
      { title: t('trash.since'), cell: e => <Moment at={e.createTime} /> },
      { title: t('trash.until'), cell: e => (e.expireTime ? <Moment at={e.expireTime} /> : t('trash.working')) },
    ]}
  />
)

/** Says until when what a run deleted waits in the trash, and lets administrators bring it back. */
export function Undo({ run, context }: { run: Run; context: Context }) {
  const loaded = useLoad(signal => trashOf(run.id!, signal), [run.id])
  const [asked, setAsked] = useState(false)
  const entries = loaded.value ?? []
  const lost = (run.results ?? []).filter(
    r => !r.undoExpireTime && [r.rowsDeleted, r.tablesDropped, r.partitionsRemoved].some(n => Number(n ?? 0) > 0),
  )
  return (
    <>
      <Problem error={loaded.problem} retry={loaded.reload} />
      {entries.length > 0 && (
        <div class="actions">
          <span>
            {t('undo.until')} <Moment at={entries.map(e => e.expireTime!).sort()[0]} /> ·{' '}
            <a href="#/trash">{t('trash.rows', { n: number(rowsIn(entries)) })}</a>
          </span>
          {context.may('ADMIN') && (
            <button type="button" onClick={() => setAsked(true)}>
              {t('trash.restore')}
            </button>
          )}
        </div>
      )}
      {entries.length > 0 && lost.length > 0 && (
        <p>
          {t('undo.lost')} <span lang="en">{lost.map(r => r.task).join(', ')}</span>
        </p>
      )}
      {asked && <Ask run={run.id!} context={context} onClose={() => setAsked(false)} />}
    </>
  )
}

type AskProps = {
  run: string
  purge?: boolean
  context: Context
  onPurged?: (rows: number) => void
  onClose: () => void
}

/** Asks which tables of a run come back, or are deleted for good, and for the number of their rows. */
function Ask({ run, purge, context, onPurged, onClose }: AskProps) {
  const loaded = useLoad(signal => trashOf(run, signal), [run])
  const [skipped, setSkipped] = useState<string[]>([])
  const [intoSchema, setIntoSchema] = useState('')
  const { busy, problem, act } = useAction()
  const tables = by('table', loaded.value ?? [])
  const chosen = tables.filter(([table]) => !skipped.includes(table))
  const rows = rowsIn(chosen.flatMap(([, entries]) => entries))
  const names = chosen.length < tables.length ? chosen.map(([table]) => table) : []
  const restoreThem = () =>
    act(async () => {
      location.hash = `#/runs/${await start({ runId: run, tables: names, intoSchema }, '/v1/trash:restore')}`
    })
  const purgeThem = () =>
    act(async () => {
      let gone = 0
      for (const table of names.length > 0 ? names : [''])
        gone += Number((await call<{ rows: string }>('POST', '/v1/trash:purge', { runId: run, table })).rows)
      onPurged?.(gone)
      onClose()
    }).then(done => done || loaded.reload()) // some tables may be gone
  const action = t(purge ? 'trash.purge' : 'trash.restore')
  return (
    <Confirm
      title={action}
      action={action}
      expected={rows > 0 ? rows : undefined}
      ready={chosen.length > 0}
      busy={busy}
      problem={problem ?? loaded.problem}
      onConfirm={purge ? purgeThem : restoreThem}
      onClose={onClose}
    >
      <Target context={context} />
      <p>{t(purge ? 'trash.purge.help' : 'trash.restore.help')}</p>
      {tables.map(([table, entries]) => (
        <label key={table} class="check">
          <input
            type="checkbox"
            checked={!skipped.includes(table)}
            onChange={e => setSkipped(e.currentTarget.checked ? skipped.filter(n => n !== table) : [...skipped, table])}
          />
          <span>
            <Code>{table}</Code> {t('trash.rows', { n: number(rowsIn(entries)) })}
          </span>
        </label>
      ))}
      {!purge && (
        <Field label={t('trash.into')} help={t('trash.into.help')}>
          <input
            autoComplete="off"
            spellcheck={false}
            value={intoSchema}
            onInput={e => setIntoSchema(e.currentTarget.value)}
          />
        </Field>
      )}
    </Confirm>
  )
}
