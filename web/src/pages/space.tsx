// The space of the tables that a run deleted from.
import type { Run } from '../api'
import { Code, Section, Table } from '../components'
import { bytes, number, t } from '../i18n'
import { spaceOf, type Space as Line } from '../runs'

const most = 10

export function Space({ run }: { run: Run }) {
  const tables = spaceOf(run)
  if (tables.length === 0) return null
  const list = (label: string, rows: Line[]) => (
    <Table
      label={label}
      rows={rows}
      keyOf={s => s.table}
      columns={[
        { title: t('table'), cell: s => <Code>{s.table}</Code> },
        { title: t('run.deleted'), numeric: true, cell: s => number(s.deleted) },
        { title: t('run.before'), numeric: true, cell: s => bytes(s.before) },
        { title: t('run.after'), numeric: true, cell: s => bytes(s.after) },
        { title: t('run.reusable'), numeric: true, cell: s => bytes(s.reusable) },
      ]}
    />
  )
  return (
    <Section title={t('run.space')}>
      {list(t('run.space'), tables.slice(0, most))}
      {tables.length > most && (
        <details class="more">
          <summary>{t('run.tables', { n: number(tables.length - most) })}</summary>
          {list(t('run.tables', { n: number(tables.length - most) }), tables.slice(most))}
        </details>
      )}
    </Section>
  )
}
