// The result of a dry run, and the confirmation to run it.
import { useState } from 'preact/hooks'
import { stream, type Run, type RunEvent, type TablePreview, type TrippedGuard } from '../api'
import { Bar, Code, Confirm, Field, Moment, Section, Table, useAction } from '../components'
import { bytes, number, t } from '../i18n'
import type { Context } from '../context'
import { nameOf } from '../runs'

type Line = TablePreview & { task: string }

export const linesOf = (run: Run): Line[] =>
  (run.results ?? []).flatMap(r => (r.preview ?? []).map(p => ({ ...p, task: r.task! })))
const drops = (line: Line) => line.action === 'PREVIEW_ACTION_DROP'
const amount = (line: Line) => Number(drops(line) ? line.tables : line.rows)
const key = (g: TrippedGuard) => `${g.guard} ${g.table}`

/** Starts a run and returns its ID once it is stored. */
export async function start(request: Record<string, unknown>) {
  for await (const { event } of stream<{ event: RunEvent }>('POST', '/v1/runs', { ...request, detach: true }))
    return event.runId!
  throw new Error(t('preview.notstarted'))
}

export function DryRunResult({ run, context }: { run: Run; context: Context }) {
  const lines = linesOf(run)
  const whatIf = lines.some(l => l.baselineRows !== undefined && l.baselineRows !== null)
  const guards = [...new Map(lines.flatMap(l => l.guards ?? []).map(g => [key(g), g])).values()]
  const sum = (matches: (l: Line) => boolean) => number(lines.filter(matches).reduce((n, l) => n + amount(l), 0))
  const runnable = run.state === 'RUN_STATE_SUCCEEDED' && !run.whatIf && lines.length > 0
  return (
    <Section
      title={t('preview.result')}
      actions={
        runnable &&
        context.may('OPERATOR') &&
        (guards.length === 0 || context.may('ADMIN')) && (
          <Approve run={run} guards={guards} rows={sum(l => !drops(l))} tables={sum(drops)} />
        )
      }
    >
      <p>
        {t('preview.sum', {
          deleted: sum(l => l.action === 'PREVIEW_ACTION_DELETE'),
          updated: sum(l => l.action === 'PREVIEW_ACTION_UPDATE'),
          tables: sum(drops),
          size: bytes(lines.reduce((n, l) => n + Number(l.bytes), 0)),
        })}
      </p>
      {guards.length > 0 && (
        <div class="notice">
          <p>
            {t('preview.guarded')}
            {!context.may('ADMIN') && ` ${t('preview.admin')}`}
          </p>
        </div>
      )}
      <Table
        label={t('preview.result')}
        rows={lines}
        keyOf={l => `${l.task} ${l.action} ${l.table}`}
        empty={t('preview.nothing')}
        columns={[
          {
            title: t('table'),
            cell: l => (
              <>
                <Code>{l.table}</Code>
                <div class="quiet" lang="en">
                  {l.task}: {l.rule}
                </div>
                {(l.remarks ?? []).map(r => (
                  <div key={r} class="quiet" lang="en">
                    {r}
                  </div>
                ))}
                {(l.names ?? []).length > 0 && (
                  <details>
                    <summary>{t('preview.names')}</summary>
                    <Code>{l.names!.join(', ')}</Code>
                  </details>
                )}
                {(l.guards ?? []).map(g => (
                  <div key={key(g)} class="badge bad" lang="en">
                    {t('preview.trips', {
                      guard: nameOf(g.guard),
                      number: number(g.number),
                      limit: number(g.limit),
                    })}
                  </div>
                ))}
              </>
            ),
          },
          {
            title: t('preview.action'),
            cell: l =>
              drops(l)
                ? t('preview.drop')
                : l.action === 'PREVIEW_ACTION_UPDATE'
                  ? t('preview.update')
                  : t('preview.delete'),
          },
          {
            title: t('preview.amount'),
            numeric: true,
            cell: l => (drops(l) ? t('preview.tables', { n: number(l.tables) }) : number(l.rows)),
          },
          ...(whatIf
            ? [{ title: t('preview.now'), numeric: true, cell: (l: Line) => number(l.baselineRows ?? undefined) }]
            : []),
          {
            title: t('preview.share'),
            cell: l =>
              Number(l.rowsTotal) > 0 && (
                <Bar share={Number(l.rows) / Number(l.rowsTotal)} label={`${t('preview.share')} ${l.table}`} />
              ),
          },
          {
            title: t('preview.age'),
            cell: l =>
              l.oldestTime && (
                <>
                  <Moment at={l.oldestTime} dayOnly />
                  <br />
                  <Moment at={l.newestTime} dayOnly />
                </>
              ),
          },
          {
            title: t('preview.sample'),
            cell: l => (
              <span>
                {(l.sample ?? []).map((id, i) => (
                  <span key={id}>
                    {i > 0 && ', '}
                    <a href={`#/explain/${encodeURIComponent(l.table ?? '')}/${id}`}>{id}</a>
                  </span>
                ))}
              </span>
            ),
          },
          { title: t('preview.size'), numeric: true, cell: l => (Number(l.bytes) > 0 ? bytes(l.bytes) : '') },
        ]}
      />
    </Section>
  )
}

/** Runs the saved plan after confirmation. The number of each guard that would trip must be typed in. */
function Approve({ run, guards, rows, tables }: { run: Run; guards: TrippedGuard[]; rows: string; tables: string }) {
  const [confirming, setConfirming] = useState(false)
  const [typed, setTyped] = useState<Record<string, string>>({})
  const { busy, problem, act } = useAction()
  const confirmed = guards.every(g => typed[key(g)]?.replace(/\D/g, '') === g.number)
  const runPlan = () =>
    act(async () => {
      location.hash = `#/runs/${await start({ plan: run.id, continueOnError: true, acceptGuards: guards.map(({ guard, table, number }) => ({ guard, table, number })) })}`
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
          <p>{t('preview.ask', { rows, tables })}</p>
          {guards.map(g => (
            <Field
              key={key(g)}
              label={t('preview.accept', { guard: nameOf(g.guard), number: number(g.number) })}
              help={g.table}
            >
              <input
                inputMode="numeric"
                autoComplete="off"
                value={typed[key(g)] ?? ''}
                onInput={e => setTyped({ ...typed, [key(g)]: e.currentTarget.value })}
              />
            </Field>
          ))}
        </Confirm>
      )}
    </>
  )
}
