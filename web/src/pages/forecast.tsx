// What becomes obsolete in the next days, whether runs keep up, how the database grows, and when sequences end.
import { call, type Forecast, type SequenceForecast, type TaskForecast } from '../api'
import { Spark } from '../chart'
import { Code, Moment, Page, Section, Show, Table, useLoad } from '../components'
import { bytes, number, percent, period, t, type Key } from '../i18n'
import { secondsOf } from '../runs'

/** Returns a number of rows, marked if it is an estimate. */
const rows = (task: TaskForecast, n?: string | null) =>
  n === undefined || n === null ? '–' : (task.exact ? '' : '~') + number(n)

export function ForecastPage() {
  const loaded = useLoad(signal => call<Forecast>('GET', '/v1/forecast', undefined, signal), [])
  return (
    <Page title={t('forecast.title')} intro={t('forecast.intro')}>
      <Show loaded={loaded}>
        {forecast => (
          <>
            <Size forecast={forecast} />
            <Tasks tasks={forecast.tasks ?? []} />
            <Sequences sequences={forecast.sequences ?? []} problem={forecast.sequencesProblem ?? undefined} />
          </>
        )}
      </Show>
    </Page>
  )
}

function Size({ forecast: { database } }: { forecast: Forecast }) {
  if (!database) return null
  const known = database.bytesIn30Days !== undefined && database.bytesIn30Days !== null
  return (
    <p>
      {t('forecast.size', { now: bytes(database.bytes) })}{' '}
      {known
        ? t('forecast.grows', {
            month: bytes(database.bytesIn30Days!),
            monthWithout: bytes(database.bytesIn30DaysWithoutCleanup ?? undefined),
            quarter: bytes(database.bytesIn90Days ?? undefined),
            quarterWithout: bytes(database.bytesIn90DaysWithoutCleanup ?? undefined),
          })
        : t('forecast.growth.unknown')}
    </p>
  )
}

function Tasks({ tasks }: { tasks: TaskForecast[] }) {
  return (
    <Table
      label={t('forecast.title')}
      rows={tasks}
      keyOf={task => task.task!}
      empty={t('forecast.none')}
      columns={[
        { title: t('run.task'), cell: task => <Code>{task.task}</Code> },
        { title: t('forecast.now'), numeric: true, cell: task => rows(task, task.dueNow) },
        { title: t('forecast.next'), numeric: true, cell: task => rows(task, task.dueNextRun) },
        {
          title: t('forecast.days'),
          cell: task =>
            task.duePerDay?.length ? (
              <Spark
                points={task.duePerDay.map((n, at) => ({ at, value: Number(n) }))}
                label={task.duePerDay.map(n => number(n)).join(' ')}
              />
            ) : (
              '–'
            ),
        },
        {
          title: t('forecast.takes'),
          numeric: true,
          cell: task => (task.expectedDuration ? period(secondsOf(task.expectedDuration)) : '–'),
        },
        { title: t('forecast.trend'), cell: task => <Trend task={task} /> },
      ]}
    />
  )
}

const shades: Record<string, string> = { IN_BALANCE: 'good', CATCHING_UP: 'warn', FALLING_BEHIND: 'bad' }

function Trend({ task }: { task: TaskForecast }) {
  if (task.problem) return <span lang="en">{task.problem}</span>
  const trend = (task.trend ?? '').replace('TREND_', '')
  const dated = task.trendTime && ['CATCHING_UP', 'FALLING_BEHIND'].includes(trend)
  const bound = (task.bound ?? '').replace('FORECAST_BOUND_', '')
  return (
    <>
      <span class={`badge ${shades[trend] ?? ''}`}>{t(`forecast.trend.${trend}${dated ? '.at' : ''}` as Key)}</span>{' '}
      {dated && <Moment at={task.trendTime} dayOnly />}{' '}
      {bound !== 'UNSPECIFIED' && bound !== '' && t(`forecast.bound.${bound}` as Key)}{' '}
      {task.failingTask && <Code>{task.failingTask}</Code>}
    </>
  )
}

function Sequences({ sequences, problem }: { sequences: SequenceForecast[]; problem?: string }) {
  return (
    <Section title={t('forecast.sequences')}>
      {problem && <p lang="en">{problem}</p>}
      <Table
        label={t('forecast.sequences')}
        rows={sequences}
        keyOf={s => s.sequence!}
        empty={problem ? '' : t('forecast.sequences.none')}
        columns={[
          { title: t('forecast.sequence'), cell: s => <Code>{s.sequence}</Code> },
          {
            title: t('forecast.columns'),
            cell: s => (s.columns ?? []).map(c => <div key={c}>{<Code>{c}</Code>}</div>),
          },
          {
            title: t('forecast.used'),
            numeric: true,
            cell: s => (Number(s.limit) > 0 ? percent(Math.max(Number(s.lastValue), 0) / Number(s.limit)) : '–'),
          },
          {
            title: t('forecast.daily'),
            numeric: true,
            cell: s => (s.valuesPerDay === undefined || s.valuesPerDay === null ? '–' : number(s.valuesPerDay)),
          },
          { title: t('forecast.ends'), cell: s => (s.limitTime ? <Moment at={s.limitTime} dayOnly /> : '–') },
        ]}
      />
    </Section>
  )
}
