// The tables of the database: their size and growth, which tasks cover them, and what is suggested for the others.
import { useState } from 'preact/hooks'
import { call, query, type DatabaseTable } from '../api'
import { Spark } from '../chart'
import { Code, Field, Page, PagedList, Table } from '../components'
import { bytes, day, number, t, type Key } from '../i18n'
import type { Context } from '../context'
import { conditionsOf, hasRows } from '../policies'

const orders = ['BYTES', 'GROWTH', 'ROWS', 'NAME']
const pageSize = 50

/** Returns the bytes of a table and its indexes. */
const sizeOf = (table: DatabaseTable) => Number(table.bytes) + Number(table.indexBytes)

/** Returns by how much a table grows a day, with a sign, or a dash if that is unknown. */
export function growth(perDay?: string) {
  if (perDay === undefined) return '–'
  return (Number(perDay) > 0 ? '+' : '') + bytes(perDay)
}

export function Tables({ context }: { context: Context }) {
  const [filter, setFilter] = useState({ order: 'BYTES', uncovered: false })
  const load = async (pageToken?: string, signal?: AbortSignal) => {
    const { tables, nextPageToken } = await call<{ tables: DatabaseTable[]; nextPageToken: string }>(
      'GET',
      query('/v1/tables', {
        orderBy: `TABLE_ORDER_${filter.order}`,
        uncoveredOnly: filter.uncovered || undefined,
        pageSize,
        pageToken,
      }),
      undefined,
      signal,
    )
    return { rows: tables, next: nextPageToken }
  }
  return (
    <Page title={t('tables.title')} intro={t('tables.intro')}>
      <form class="row" onSubmit={event => event.preventDefault()}>
        <Field label={t('tables.order')}>
          <select value={filter.order} onChange={e => setFilter({ ...filter, order: e.currentTarget.value })}>
            {orders.map(order => (
              <option key={order} value={order}>
                {t(`tables.order.${order}` as Key)}
              </option>
            ))}
          </select>
        </Field>
        <label class="check">
          <input
            type="checkbox"
            checked={filter.uncovered}
            onChange={e => setFilter({ ...filter, uncovered: e.currentTarget.checked })}
          />
          {t('tables.uncovered')}
        </label>
      </form>
      <PagedList load={load} dependencies={[filter]}>
        {tables => (
          <Table
            label={t('tables.title')}
            rows={tables}
            keyOf={table => table.name!}
            columns={[
              { title: t('table'), cell: table => <Name table={table} /> },
              { title: t('tables.size'), numeric: true, cell: table => bytes(sizeOf(table)) },
              {
                title: t('tables.growth'),
                numeric: true,
                cell: table => (
                  <>
                    {growth(table.growth7Days)} <History table={table} />
                  </>
                ),
              },
              { title: t('tables.rows'), numeric: true, cell: table => number(table.rows) },
              {
                title: t('tables.free'),
                numeric: true,
                cell: table => (table.freeBytes === undefined ? '–' : bytes(table.freeBytes)),
              },
              {
                title: t('tables.covered'),
                cell: table =>
                  table.coveredBy!.length > 0 ? (
                    <Code>{table.coveredBy!.join(' ')}</Code>
                  ) : (
                    <>
                      {t('tables.nothing')}
                      {context.may('ADMIN') && hasRows(table) && (
                        <div>
                          <a href={`#/policies//${encodeURIComponent(table.name!)}`}>{t('policies.create')}</a>
                        </div>
                      )}
                    </>
                  ),
              },
            ]}
          />
        )}
      </PagedList>
    </Page>
  )
}

/** Shows a table's name, and below it why work tables are retained, and what is suggested. */
function Name({ table }: { table: DatabaseTable }) {
  const retained = table.retained ?? []
  const unused = retained.reduce((n, r) => n - Number(r.tables), Number(table.tableCount))
  const suggestion = table.suggestion
  return (
    <>
      <Code>{table.name}</Code>
      {Number(table.tableCount) > 0 && (
        <details>
          <summary>{t('tables.count', { n: number(table.tableCount), unused: number(unused) })}</summary>
          <ul>
            {retained.map(r => (
              <li key={r.reason}>
                {t('tables.retained', { n: number(r.tables), size: bytes(r.bytes) })} <span lang="en">{r.reason}</span>
              </li>
            ))}
          </ul>
        </details>
      )}
      {suggestion && (
        <details>
          <summary>{t('tables.suggestion')}</summary>
          <p lang="en">{suggestion.reason}</p>
          {suggestion.policy && <Code>{conditionsOf(suggestion.policy).join()}</Code>}
          {suggestion.columnReason && <p lang="en">{suggestion.columnReason}</p>}
        </details>
      )}
    </>
  )
}

/** Draws the size of a table over the last 30 days, until now. */
function History({ table }: { table: DatabaseTable }) {
  const past = (table.history ?? []).map(p => ({ at: Date.parse(p.sampleTime!), value: Number(p.bytes) }))
  if (past.length === 0) return null
  const points = [...past, { at: Date.now(), value: sizeOf(table) }]
  const label = t('tables.history', {
    since: day(new Date(past[0]!.at)),
    from: bytes(past[0]!.value),
    to: bytes(sizeOf(table)),
  })
  return <Spark label={label} points={points} />
}
